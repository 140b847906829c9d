//! The limits of the tool loop.

use super::keys;
use super::read::millis;
use super::reader::Reader;
use crate::tool_loop::{Limits, MemoryLimits};

/// Reads them.
pub(super) fn read(reader: &mut Reader<'_>) -> Limits {
    Limits {
        request_timeout: millis(reader, &keys::TOOL_LOOP_REQUEST_TIMEOUT_MS),
        keep_alive: millis(reader, &keys::TOOL_LOOP_KEEP_ALIVE_MS),
        max_frame_bytes: reader.size(&keys::TOOL_LOOP_MAX_FRAME_BYTES),
        max_answer_bytes: reader.size(&keys::TOOL_LOOP_MAX_ANSWER_BYTES),
        max_transcript_bytes: reader.size(&keys::TOOL_LOOP_MAX_TRANSCRIPT_BYTES),
        max_argument_bytes: reader.size(&keys::TOOL_LOOP_MAX_ARGUMENT_BYTES),
        max_calls_per_turn: reader.size(&keys::TOOL_LOOP_MAX_CALLS_PER_TURN),
        max_concurrent_calls: reader.size(&keys::TOOL_LOOP_MAX_CONCURRENT_CALLS),
        max_result_bytes: reader.size(&keys::TOOL_LOOP_MAX_RESULT_BYTES),
        max_error_bytes: reader.size(&keys::TOOL_LOOP_MAX_ERROR_BYTES),
        file_timeout: millis(reader, &keys::TOOL_LOOP_FILE_TIMEOUT_MS),
        max_inline_image_bytes: reader.size(&keys::TOOL_LOOP_MAX_INLINE_IMAGE_BYTES),
        max_queued_chunks: reader.size(&keys::TOOL_LOOP_MAX_QUEUED_CHUNKS),
        memory: MemoryLimits {
            max_age: millis(reader, &keys::TOOL_LOOP_MEMORY_MAX_AGE_MS),
            max_answers: reader.size(&keys::TOOL_LOOP_MEMORY_MAX_ANSWERS),
            max_bytes: reader.size(&keys::TOOL_LOOP_MEMORY_MAX_BYTES),
            max_workspace_answers: reader.size(&keys::TOOL_LOOP_MEMORY_MAX_WORKSPACE_ANSWERS),
            max_workspace_bytes: reader.size(&keys::TOOL_LOOP_MEMORY_MAX_WORKSPACE_BYTES),
        },
        drain_timeout: millis(reader, &keys::TOOL_LOOP_DRAIN_TIMEOUT_MS),
    }
}
