//! Memory for the values the host returns: it asks for some with `proxy_on_memory_allocate`, writes, and the call that
//! wanted the value claims it back by address.
//!
//! INVARIANT: a buffer handed to the host stays in `lent`, unmoved, until it is claimed; so one call may return any
//! number of values, and the usual single one costs no allocation, because the buffer of the last is used again.

use std::cell::RefCell;

/// A spare buffer above this size is given back to the allocator (64 KiB of headers or a batch of body fit).
const KEEP_BYTES: usize = 256 * 1024;

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { spare: Vec::new(), lent: Vec::new() }) };
}

struct Memory {
    spare: Vec<u8>,
    lent: Vec<Vec<u8>>,
}

/// A buffer of at least `size` bytes for the host to write into; null if there is none to give.
pub(crate) fn lend(size: usize) -> *mut u8 {
    MEMORY.with(|memory| {
        let Ok(mut memory) = memory.try_borrow_mut() else { return std::ptr::null_mut() };
        let mut buffer = std::mem::take(&mut memory.spare);
        if let Some(missing) = size.checked_sub(buffer.len()) {
            if buffer.try_reserve_exact(missing).is_err() {
                return std::ptr::null_mut();
            }
            buffer.resize(size, 0);
        }
        let address = buffer.as_mut_ptr();
        memory.lent.push(buffer);
        address
    })
}

/// A value the host has written.
pub(super) struct Claimed {
    buffer: Vec<u8>,
    size: usize,
}

impl Claimed {
    /// Takes back what the host wrote at `address`.
    pub(super) fn new(address: *const u8, size: usize) -> Self {
        let buffer = MEMORY.with(|memory| {
            let mut memory = memory.try_borrow_mut().ok()?;
            let position = memory.lent.iter().position(|buffer| std::ptr::eq(buffer.as_ptr(), address))?;
            Some(memory.lent.swap_remove(position))
        });
        Self { buffer: buffer.unwrap_or_default(), size }
    }

    /// The value; `None` if the host names memory that it was not lent. An empty value needs no memory.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.buffer.get(..self.size)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        MEMORY.with(|memory| {
            if let Ok(mut memory) = memory.try_borrow_mut()
                && buffer.len() > memory.spare.len()
                && buffer.len() <= KEEP_BYTES
            {
                memory.spare = buffer;
            }
        });
    }
}
