//! One JSON case in, one JSON answer out: what native tests, the filter in Envoy, the sidecar and the page all run.
//!
//! INVARIANT: equal cases give equal bytes everywhere, however the body is cut.

/// Explains a case `{request: {method, path, headers, body | body_text | body_hex}, config, snapshot}`.
/// A case that cannot be read gives `{"error": …}`.
pub fn explain(_case: &[u8]) -> Vec<u8> {
    Vec::new()
}
