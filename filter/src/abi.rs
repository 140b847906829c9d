//! What Envoy calls, and the contexts it speaks of: exactly the exports this filter needs.
//!
//! INVARIANT: no response callback, no `proxy_on_log`, no `proxy_on_done`: the host takes a missing export for
//! "nothing to do", and an export would be entered for every response chunk of every stream.
#![expect(unsafe_code, reason = "exports need unmangled names")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::exchange::{Next, Stream};
use crate::host;
use crate::root::Root;

/// Action codes of the ABI.
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;

thread_local! {
    static ROOTS: RefCell<BTreeMap<u32, Rc<Root>>> = const { RefCell::new(BTreeMap::new()) };
    static STREAMS: RefCell<BTreeMap<u32, Stream>> = const { RefCell::new(BTreeMap::new()) };
    /// Which root a stream belongs to, until its headers come.
    static PARENTS: RefCell<BTreeMap<u32, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Marks the ABI version by its name.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Memory for a value the host is about to return.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    host::lend(size)
}
