//! `POST /v1/files`: a form with a file in it, written to the store while it arrives.
//!
//! INVARIANT: there is a file only when the whole form has arrived and was in order; whatever ends the request before
//! that drops the upload, and with it what was written.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use decision::format::Vocabulary;
use decision::identity::Identity;
use decision::problem::Problem;
use http::StatusCode;
use http_body::Body as _;

use super::super::access::Caller;
use super::super::internal::json_response;
use super::super::{Refusal, Services};
use super::form::{Form, Part, Patience};
use super::settings::Settings;
use super::{Visit, failure, media_type, render};
use crate::files::{Files, NewFile, Upload, name};

/// The part with the file.
const FILE: &str = "file";
/// What a form may have beside the file. A longer body is refused by its length alone.
const FORM_MAX_BYTES: u64 = 64 << 10;

/// A file whose bytes are there.
struct Received {
    upload: Upload,
    filename: String,
    mime_type: String,
}

/// `POST /v1/files`
pub(super) async fn upload(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let Visit { files, owner } = Visit::admit(&services, &head).await?;
    let max_bytes = files.limits().max_bytes;
    if body.size_hint().lower() > max_bytes.saturating_add(FORM_MAX_BYTES) {
        return Err(failure::too_large(max_bytes).into());
    }
    let patience = Patience {
        silence: services.body_timeout,
        deadline: services.upload_deadline,
        min_bytes_per_s: services.upload_min_bytes_per_s,
    };
    let mut form = Form::begin(&head.headers, body, patience)?;
    let mut settings = Settings::new(caller.vocabulary);
    let mut received = None;
    while let Some(part) = form.next().await? {
        if part.disposition.field == FILE {
            if received.is_some() {
                return Err(odd("the form has two parts `file`: send one file at a time").into());
            }
            received = Some(receive(files, &owner, part, &services, &caller).await?);
        } else {
            settings.expect(&part.disposition.field)?;
            let field = part.disposition.field.clone();
            settings.set(&field, &part.text().await?)?;
        }
    }
    let Received { upload, filename, mime_type } = received.ok_or_else(|| odd("the form has no part `file`"))?;
    let (purpose, lifetime_ms) = settings.finish()?;
    let new = NewFile { filename, mime_type, purpose, lifetime_ms };
    let file = upload.finish(new).await.map_err(failure::of)?;
    caller.notes.file(&file.id);
    Ok(json_response(StatusCode::OK, &render::file(&file, caller.vocabulary)))
}

/// Writes the content of a part. Its name and type are looked at first.
async fn receive(
    files: &Files,
    owner: &Identity,
    mut part: Part<'_>,
    services: &Services,
    caller: &Caller,
) -> Result<Received, Refusal> {
    let (filename, mime_type) = name_and_type(&part, caller.vocabulary)?;
    let mut upload = files.begin(owner, files.limits().max_bytes).await.map_err(failure::of)?;
    while let Some(piece) = part.piece().await? {
        let bytes = piece.len();
        if bytes == 0 {
            continue;
        }
        upload.write(piece).await.map_err(failure::of)?;
        caller.notes.received(bytes);
        services.metrics.file_bytes_received(bytes);
    }
    if upload.size_bytes() == 0 {
        return Err(odd("the file is empty: send at least one byte").into());
    }
    Ok(Received { upload, filename, mime_type })
}

fn name_and_type(part: &Part<'_>, vocabulary: Vocabulary) -> Result<(String, String), Problem> {
    let declared = part.media_type.as_deref();
    if let Some(given) = &part.disposition.file_name {
        let refused = |error| odd(format!("{error}: give it another one"));
        let filename = name::clean(given).map_err(refused)?;
        if vocabulary == Vocabulary::Anthropic {
            name::check_reserved(&filename).map_err(refused)?;
        }
        let mime_type = media_type::of(declared, &filename)?;
        return Ok((filename, mime_type));
    }
    let mime_type = media_type::of(declared, "")?;
    // What each vendor's service, or its SDK, calls bytes without a name.
    let stem = match vocabulary {
        Vocabulary::Anthropic => "unnamed",
        Vocabulary::OpenAi => "upload",
    };
    Ok((format!("{stem}{}", media_type::extension(&mime_type)), mime_type))
}

fn odd(message: impl Into<String>) -> Problem {
    Problem::invalid(message).with_param(FILE)
}
