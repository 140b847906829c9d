//! The imports, exactly as the proxy-wasm ABI 0.2.1 names them; the import guard of the build holds the same list.
//!
//! INVARIANT: every pointer is used by the host only until the call returns.
#![expect(unsafe_code, reason = "foreign functions are declared here and called in `host` alone")]

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    pub(super) fn proxy_log(level: u32, message: *const u8, message_size: usize) -> u32;
    pub(super) fn proxy_get_current_time_nanoseconds(time_ns: *mut u64) -> u32;
    pub(super) safe fn proxy_set_tick_period_milliseconds(period_ms: u32) -> u32;

    pub(super) fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;

    pub(super) fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    pub(super) fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    pub(super) fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;

    pub(super) fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;

    pub(super) fn proxy_http_call(
        cluster: *const u8,
        cluster_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;

    pub(super) fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        version: *mut u32,
    ) -> u32;
    pub(super) fn proxy_set_shared_data(
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        version: u32,
    ) -> u32;

    pub(super) fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    pub(super) safe fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    pub(super) safe fn proxy_record_metric(id: u32, value: u64) -> u32;

    pub(super) fn proxy_call_foreign_function(
        name: *const u8,
        name_size: usize,
        arguments: *const u8,
        arguments_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    pub(super) fn clock_time_get(clock: u32, precision_ns: u64, time_ns: *mut u64) -> u32;
}
