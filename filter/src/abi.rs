//! What Envoy calls, and the contexts it speaks of: exactly the exports this filter needs.
//!
//! INVARIANT: no response callback, no `proxy_on_vm_start`, `proxy_on_log`, `proxy_on_done`: the host takes a missing
//! export for "nothing to do", and an export would be entered, for response callbacks with every chunk of every stream.
#![expect(unsafe_code, reason = "exports need unmangled names")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::exchange::{self, Next, Stream};
use crate::host::{self, Level};
use crate::root::Root;

/// Action codes of the ABI.
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

thread_local! {
    static ROOTS: RefCell<BTreeMap<u32, Rc<Root>>> = const { RefCell::new(BTreeMap::new()) };
    static STREAMS: RefCell<BTreeMap<u32, Stream>> = const { RefCell::new(BTreeMap::new()) };
}

/// Marks the ABI version by its name.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Memory for a value the host is about to return.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    host::lend(size)
}

/// A root context (`parent` 0), which is nothing before its configuration, or a request.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    if let Some(root) = root(parent) {
        with(&STREAMS, |streams| streams.insert(context, Stream::new(root)));
    }
}

/// The plugin configuration of a root context. False keeps Envoy on the last that was good.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(context: u32, config_size: usize) -> bool {
    let Some(root) = Root::configure(config_size) else { return false };
    with(&ROOTS, |roots| roots.insert(context, Rc::new(root))).is_some()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(context: u32) {
    if let Some(root) = root(context) {
        root.tick();
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(context: u32, token: u32, _headers: u32, body_size: usize, _trailers: u32) {
    if let Some(root) = root(context) {
        root.call_answered(token, body_size);
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _headers: u32, end_of_stream: u32) -> u32 {
    stream(context, |stream| stream.on_headers(end_of_stream != 0))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(context: u32, size: usize, end_of_stream: u32) -> u32 {
    stream(context, |stream| stream.on_body(size, end_of_stream != 0))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(context: u32, _trailers: u32) -> u32 {
    stream(context, Stream::on_trailers)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(context: u32) {
    if with(&STREAMS, |streams| streams.remove(&context)).flatten().is_none() {
        with(&ROOTS, |roots| roots.remove(&context));
    }
}

fn root(context: u32) -> Option<Rc<Root>> {
    with(&ROOTS, |roots| roots.get(&context).cloned()).flatten()
}

fn stream(context: u32, callback: impl FnOnce(&mut Stream) -> Next) -> u32 {
    match with(&STREAMS, |streams| streams.get_mut(&context).map(callback)).flatten() {
        Some(Next::Continue) => CONTINUE,
        Some(Next::Pause) => PAUSE,
        None => {
            // Cannot be: Envoy creates a context first. If it is, the request must not slip by.
            host::log(Level::Error, "a request without a context was refused");
            exchange::refuse_unseen();
            PAUSE
        }
    }
}

/// `None` if the state is in use, which the invariant of `host` rules out.
fn with<S, T>(state: &'static std::thread::LocalKey<RefCell<S>>, change: impl FnOnce(&mut S) -> T) -> Option<T> {
    state.with(|state| state.try_borrow_mut().ok().map(|mut state| change(&mut state)))
}
