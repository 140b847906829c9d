//! The proxy-wasm filter: Envoy callbacks in, decisions out. No rule lives here.
