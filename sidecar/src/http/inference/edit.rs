//! The two changes a relayed body may see.
//!
//! INVARIANT: every byte outside the changed value stays.

use bytes::{Bytes, BytesMut};
use decision::problem::Problem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::Refusal;

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
}

/// Puts another name in the place of the top-level `model`.
pub(super) fn replace_model(body: &Bytes, name: &str) -> Result<Bytes, Refusal> {
    let named: Named<'_> = serde_json::from_slice(body).map_err(not_json)?;
    let old = named.model.get();
    // The value is a slice of the body: its distance from the start is where it stands.
    let start = (old.as_ptr() as usize).wrapping_sub(body.as_ptr() as usize);
    let (Some(before), Some(after)) = (body.get(..start), body.get(start.wrapping_add(old.len())..)) else {
        return Err(Problem::invalid("`model` could not be found in the request body").into());
    };
    let name = Value::from(name).to_string();
    let mut edited = BytesMut::with_capacity(body.len() + name.len());
    edited.extend_from_slice(before);
    edited.extend_from_slice(name.as_bytes());
    edited.extend_from_slice(after);
    Ok(edited.freeze())
}

/// Folds answers of ours, which no provider knows, into plain history.
pub(super) fn fold_history(body: Bytes) -> Result<Bytes, Refusal> {
    let mut value: Value = serde_json::from_slice(&body).map_err(not_json)?;
    if !crate::wire::messages::fold_minted(&mut value) {
        return Ok(body);
    }
    Ok(value.to_string().into())
}

fn not_json(error: serde_json::Error) -> Refusal {
    Refusal::from(Problem::invalid("the request body is not JSON this gateway can read")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_changes() {
        let body = Bytes::from_static(b"{ \"x\": 1.50, \"model\" : \"a:b\",\n\"n\":{\"model\":1} }");
        let edited = replace_model(&body, "b\"c").unwrap();
        assert_eq!(&edited[..], b"{ \"x\": 1.50, \"model\" : \"b\\\"c\",\n\"n\":{\"model\":1} }");
    }

    #[test]
    fn a_body_without_a_model_is_refused() {
        assert!(replace_model(&Bytes::from_static(b"{}"), "b").is_err());
    }
}
