//! How much one request that runs code may use. Every field is a config key under `tool_loop`.

use std::time::Duration;

use super::memory::MemoryLimits;

/// Limits of one request that runs code.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The whole request, all model calls and executions together.
    pub request_timeout: Duration,
    /// Longest silence towards a streaming client.
    pub keep_alive: Duration,
    /// One event of a model's stream, in bytes.
    pub max_frame_bytes: usize,
    /// One model answer, in bytes: a whole body, or what a stream adds to the transcript.
    pub max_answer_bytes: usize,
    /// What a model is sent of one request's history, its own turns and their results among it, in bytes.
    pub max_transcript_bytes: usize,
    /// The arguments of one code call, in bytes.
    pub max_argument_bytes: usize,
    /// Code calls in one answer of the model; more are refused, each with its own error result.
    pub max_calls_per_turn: usize,
    /// Calls of one answer that run at the same time, where they and the sandbox allow it.
    pub max_concurrent_calls: usize,
    /// Standard output and standard error each, towards model and client, in bytes.
    pub max_result_bytes: usize,
    /// What a provider says about a failure, in bytes.
    pub max_error_bytes: usize,
    /// All files of a request on their way into a session, and again all that one call wrote on their way out.
    pub file_timeout: Duration,
    /// Images that an answer shows in itself, in bytes; further ones it shows by their address.
    pub max_inline_image_bytes: usize,
    /// Pieces of the answer that wait for a slow client.
    pub max_queued_chunks: usize,
    /// What is remembered for the next requests of conversations.
    pub memory: MemoryLimits,
    /// How long the rest of a finished model answer is read, to keep its connection; and the text of a refusal.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_hours(1),
            keep_alive: Duration::from_secs(10),
            max_frame_bytes: 16 << 20,
            max_answer_bytes: 64 << 20,
            max_transcript_bytes: 128 << 20,
            max_argument_bytes: 1 << 20,
            max_calls_per_turn: 16,
            max_concurrent_calls: 4,
            max_result_bytes: 1 << 20,
            max_error_bytes: 256 << 10,
            file_timeout: Duration::from_mins(2),
            max_inline_image_bytes: 4 << 20,
            max_queued_chunks: 16,
            memory: MemoryLimits::default(),
            drain_timeout: Duration::from_secs(1),
        }
    }
}
