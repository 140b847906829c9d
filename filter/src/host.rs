//! What we call in Envoy: the few host calls of the ABI, each with a `Result` and without a way to panic.
//!
//! INVARIANT: no call made here runs our callbacks before it returns, but `proxy_on_memory_allocate`, which touches
//! `memory` alone; so callers may hold their own state borrowed across any of these calls.
#![expect(unsafe_code, reason = "calls into the host take raw pointers; nothing outside `host` and `abi` does")]

mod memory;
mod pairs;
mod raw;

use std::ptr;

pub(crate) use memory::lend;
pub(crate) use pairs::Pair;

/// Why a host call gave nothing. The numbers are the ABI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostError {
    /// 1: no such key, function or buffer.
    NotFound,
    /// 8: somebody else wrote the shared value first.
    CasMismatch,
    /// Any other status.
    Failed(u32),
    /// The host said it worked, but what it returned could not be read.
    Unreadable,
}

/// Which buffer to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Buffer {
    /// The part of the request's body that Envoy holds.
    RequestBody,
    /// The answer to our own HTTP call.
    CallResponseBody,
    /// The plugin configuration.
    PluginConfiguration,
}

impl Buffer {
    fn number(self) -> u32 {
        match self {
            Self::RequestBody => 0,
            Self::CallResponseBody => 4,
            Self::PluginConfiguration => 7,
        }
    }
}

/// Which header list to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeaderMap {
    /// The request's headers.
    Request,
    /// The headers of the answer to our own HTTP call.
    CallResponse,
}

impl HeaderMap {
    fn number(self) -> u32 {
        match self {
            Self::Request => 0,
            Self::CallResponse => 6,
        }
    }
}

/// Severity of a log line; Envoy's own level decides what is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level {
    /// A state changed.
    Info,
    /// Degraded, and somebody should look.
    Warn,
    /// A plugin that cannot start, or a request lost to us.
    Error,
}

/// What a metric means.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricKind {
    /// Only grows.
    Counter,
    /// The last value.
    Gauge,
}

/// A metric Envoy knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric(u32);

/// Version of a shared value, for compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u32);

impl Version {
    /// Writes whatever stands there. The host's number for "no comparison" is 0.
    pub(crate) const ANY: Self = Self(0);
}

/// Writes a log line. Never give it bodies, keys or header values.
pub(crate) fn log(level: Level, message: &str) {
    let number = match level {
        Level::Info => 2,
        Level::Warn => 3,
        Level::Error => 4,
    };
    // SAFETY: the host reads `message` during the call only. A log line that is not written has nobody to tell.
    let _status: u32 = unsafe { raw::proxy_log(number, message.as_ptr(), message.len()) };
}

/// Nanoseconds since the Unix epoch, 0 if the host has no clock.
pub(crate) fn wall_clock_ns() -> u64 {
    let mut time_ns = 0;
    // SAFETY: the host writes eight bytes to a place of that size.
    let _status: u32 = unsafe { raw::proxy_get_current_time_nanoseconds(&raw mut time_ns) };
    time_ns
}

/// Nanoseconds on a clock that nobody can set, the same for all workers of a process.
pub(crate) fn monotonic_ns() -> Result<u64, HostError> {
    const MONOTONIC: u32 = 1;
    let mut time_ns = 0;
    // SAFETY: the host writes eight bytes to a place of that size.
    check(unsafe { raw::clock_time_get(MONOTONIC, 0, &raw mut time_ns) })?;
    Ok(time_ns)
}

/// Asks for `proxy_on_tick` every `period_ms`.
pub(crate) fn set_tick_period(period_ms: u32) -> Result<(), HostError> {
    check(raw::proxy_set_tick_period_milliseconds(period_ms))
}

/// Lets `read` look at `max_size` bytes of a buffer from `start`.
pub(crate) fn buffer<T>(
    buffer: Buffer,
    start: usize,
    max_size: usize,
    read: impl FnOnce(&[u8]) -> T,
) -> Result<T, HostError> {
    // SAFETY: the host writes an address and a size to places of that type; `receive` checks both.
    receive(read, |data, size| unsafe { raw::proxy_get_buffer_bytes(buffer.number(), start, max_size, data, size) })
}

/// Lets `read` look at all pairs of a header list, pseudo-headers first, names in lower case.
pub(crate) fn headers<T>(map: HeaderMap, read: impl FnOnce(&[Pair<'_>]) -> T) -> Result<T, HostError> {
    // SAFETY: as in `buffer`.
    receive(
        |bytes| pairs::decode(bytes).map(|pairs| read(&pairs)),
        |data, size| unsafe { raw::proxy_get_header_map_pairs(map.number(), data, size) },
    )?
    .ok_or(HostError::Unreadable)
}

/// Sets a request header, in place of every value it has.
pub(crate) fn set_request_header(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: the host reads both strings during the call only.
    check(unsafe {
        raw::proxy_replace_header_map_value(
            HeaderMap::Request.number(),
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    })
}

/// Removes every value of a request header.
pub(crate) fn remove_request_header(name: &str) -> Result<(), HostError> {
    // SAFETY: the host reads `name` during the call only.
    check(unsafe { raw::proxy_remove_header_map_value(HeaderMap::Request.number(), name.as_ptr(), name.len()) })
}

/// Makes Envoy match routes again with the headers as they are now. A host that does so by itself may not know the
/// function.
pub(crate) fn clear_route_cache() -> Result<(), HostError> {
    const NAME: &str = "clear_route_cache";
    // SAFETY: the host reads `NAME` during the call only; the function takes no argument and returns nothing.
    let status = unsafe {
        raw::proxy_call_foreign_function(NAME.as_ptr(), NAME.len(), ptr::null(), 0, ptr::null_mut(), ptr::null_mut())
    };
    match check(status) {
        Err(HostError::NotFound) => Ok(()),
        other => other,
    }
}

/// Answers the request here. `details` is a word for the access log.
pub(crate) fn reply<V: AsRef<[u8]>>(
    status: u16,
    headers: &[(&str, V)],
    body: &[u8],
    details: &str,
) -> Result<(), HostError> {
    const NO_GRPC_STATUS: i32 = -1;
    let headers = pairs::encode(headers);
    // SAFETY: the host copies all three during the call.
    check(unsafe {
        raw::proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    })
}

/// Starts a GET; the answer comes to `proxy_on_http_call_response` with the same number, a failure as a made-up 5xx
/// status.
pub(crate) fn get(cluster: &str, headers: &[(&str, &str)], timeout_ms: u32) -> Result<u32, HostError> {
    let headers = pairs::encode(headers);
    let trailers = pairs::encode::<&str, &str>(&[]);
    let mut token = 0;
    // SAFETY: the host copies the inputs during the call and writes four bytes to a place of that size.
    check(unsafe {
        raw::proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            ptr::null(),
            0,
            trailers.as_ptr(),
            trailers.len(),
            timeout_ms,
            &raw mut token,
        )
    })?;
    Ok(token)
}

/// Lets `read` look at a value that all workers of the process share.
pub(crate) fn shared<T>(key: &str, read: impl FnOnce(&[u8]) -> T) -> Result<(T, Version), HostError> {
    let mut version = 0;
    // SAFETY: as in `buffer`; the version is four bytes in a place of that size.
    let value = receive(read, |data, size| unsafe {
        raw::proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut version)
    })?;
    Ok((value, Version(version)))
}

/// Writes a shared value if it still has this version; a key that does not exist yet is written whatever the version.
pub(crate) fn set_shared(key: &str, value: &[u8], version: Version) -> Result<(), HostError> {
    // SAFETY: the host copies both during the call.
    check(unsafe { raw::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version.0) })
}

/// Names a metric; the same name always gives the same metric.
pub(crate) fn define_metric(kind: MetricKind, name: &str) -> Result<Metric, HostError> {
    let kind = match kind {
        MetricKind::Counter => 0,
        MetricKind::Gauge => 1,
    };
    let mut id = 0;
    // SAFETY: the host reads `name` during the call and writes four bytes to a place of that size.
    check(unsafe { raw::proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) })?;
    Ok(Metric(id))
}

/// Adds to a counter.
pub(crate) fn increment(metric: Metric, by: u64) {
    // The host refuses 0. A count that is lost has nobody to tell.
    if let Ok(by @ 1..) = i64::try_from(by) {
        let _status: u32 = raw::proxy_increment_metric(metric.0, by);
    }
}

/// Sets a gauge.
pub(crate) fn record(metric: Metric, value: u64) {
    let _status: u32 = raw::proxy_record_metric(metric.0, value);
}

fn check(status: u32) -> Result<(), HostError> {
    match status {
        0 => Ok(()),
        1 => Err(HostError::NotFound),
        8 => Err(HostError::CasMismatch),
        other => Err(HostError::Failed(other)),
    }
}

/// Makes a call that returns one value, and lets `read` look at it.
fn receive<T>(
    read: impl FnOnce(&[u8]) -> T,
    call: impl FnOnce(*mut *mut u8, *mut usize) -> u32,
) -> Result<T, HostError> {
    let mut address: *mut u8 = ptr::null_mut();
    let mut size = 0;
    let status = call(&raw mut address, &raw mut size);
    // Claimed whatever the status: memory lent for a call that then failed must come back too.
    let value = memory::Claimed::new(address, size);
    check(status)?;
    value.bytes().map(read).ok_or(HostError::Unreadable)
}
