//! `files`: where they are kept, and how much there may be.

use std::path::Path;
use std::time::Duration;

use super::read::millis;
use super::reader::Reader;
use super::{FilesConfig, keys};
use crate::attachments::AttachmentLimits;
use crate::extract::ExtractLimits;
use crate::files::{FilesLimits, StoreTarget};

const HOUR_S: u64 = 3600;

/// Reads them; `None` when they are off. Everything is looked at all the same.
pub(super) fn read(reader: &mut Reader<'_>, data_dir: &Path) -> Option<FilesConfig> {
    let enabled = reader.boolean(&keys::FILES_ENABLED);
    let url = reader.required_text(&keys::FILES_URL);
    let store = StoreTarget::parse(&url, data_dir).unwrap_or_else(|fix| {
        reader.problem(keys::FILES_URL.path, super::reader::without_password(&url), fix);
        StoreTarget::Memory
    });
    let retention = reader.optional_integer(&keys::FILES_RETENTION_HOURS);
    let sweep = reader.integer(&keys::FILES_SWEEP_INTERVAL_SEC);
    let config = FilesConfig {
        store,
        limits: FilesLimits {
            max_bytes: reader.integer(&keys::FILES_MAX_BYTES),
            output_max_files: reader.size(&keys::FILES_OUTPUT_MAX_FILES),
            output_max_bytes: reader.integer(&keys::FILES_OUTPUT_MAX_BYTES),
            retention: retention.map(|hours| Duration::from_secs(hours.saturating_mul(HOUR_S))),
            workspace_max_bytes: reader.integer(&keys::FILES_WORKSPACE_MAX_BYTES),
            workspace_max_files: reader.integer(&keys::FILES_WORKSPACE_MAX_FILES),
            max_concurrent_uploads: reader.size(&keys::FILES_MAX_CONCURRENT_UPLOADS),
        },
        attachments: AttachmentLimits {
            inline_max_bytes: reader.integer(&keys::FILES_INLINE_MAX_BYTES),
            inline_max_request_bytes: reader.integer(&keys::FILES_INLINE_MAX_REQUEST_BYTES),
            text_max_chars: reader.size(&keys::FILES_TEXT_MAX_CHARS),
        },
        extraction: read_extraction(reader),
        sweep_interval: (sweep > 0).then(|| Duration::from_secs(sweep)),
    };
    enabled.then_some(config)
}

fn read_extraction(reader: &mut Reader<'_>) -> Option<ExtractLimits> {
    let enabled = reader.boolean(&keys::FILES_EXTRACTION);
    let limits = ExtractLimits {
        timeout: millis(reader, &keys::FILES_EXTRACTION_TIMEOUT_MS),
        max_document_bytes: reader.integer(&keys::FILES_EXTRACTION_MAX_BYTES),
        max_chars: reader.size(&keys::FILES_TEXT_MAX_CHARS),
        max_concurrent: reader.size(&keys::FILES_EXTRACTION_MAX_CONCURRENT),
    };
    enabled.then_some(limits)
}
