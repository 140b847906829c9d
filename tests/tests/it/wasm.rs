//! What the built filter asks of Envoy, offers to it, and weighs.

use std::collections::BTreeSet;

use harness::stack::filter_wasm;
use harness::wasm::Module;

/// The host calls of `filter/src/host/raw.rs`. One that another crate drags in would stop the module from loading.
const IMPORTS: &[&str] = &[
    "env.proxy_call_foreign_function",
    "env.proxy_define_metric",
    "env.proxy_get_buffer_bytes",
    "env.proxy_get_current_time_nanoseconds",
    "env.proxy_get_header_map_pairs",
    "env.proxy_get_shared_data",
    "env.proxy_http_call",
    "env.proxy_increment_metric",
    "env.proxy_log",
    "env.proxy_record_metric",
    "env.proxy_remove_header_map_value",
    "env.proxy_replace_header_map_value",
    "env.proxy_send_local_response",
    "env.proxy_set_shared_data",
    "env.proxy_set_tick_period_milliseconds",
    "wasi_snapshot_preview1.clock_time_get",
];

/// Callbacks Envoy may enter. One for responses would cost every chunk of every stream a call.
const CALLBACKS: &[&str] = &[
    "proxy_abi_version_0_2_1",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_http_call_response",
    "proxy_on_memory_allocate",
    "proxy_on_request_body",
    "proxy_on_request_headers",
    "proxy_on_request_trailers",
    "proxy_on_tick",
];

/// Envoy compiles the module for each worker when it starts.
const MAX_BYTES: usize = 600 * 1024;

#[test]
fn the_filter_asks_for_no_more_than_it_needs() {
    let bytes = std::fs::read(filter_wasm().unwrap()).unwrap();
    let module = Module::parse(&bytes).unwrap();
    let imports: BTreeSet<&str> = module.imports.iter().map(String::as_str).collect();
    assert_eq!(imports, IMPORTS.iter().copied().collect());
    let callbacks = module.exports.iter().map(String::as_str).filter(|name| name.starts_with("proxy_"));
    assert_eq!(callbacks.collect::<BTreeSet<_>>(), CALLBACKS.iter().copied().collect());
    assert!(bytes.len() <= MAX_BYTES, "{} bytes are over the budget of {MAX_BYTES}", bytes.len());
}
