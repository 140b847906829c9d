//! The wires that code execution is served in: which a caller may speak, which a model may be called in.
//!
//! INVARIANT: chosen once per request, here; a wire that is built is a variant, and the compiler names every place that
//! has to know it.

use decision::config::ProviderKind;
use decision::decide::Run;
use decision::format::ApiFormat;
use decision::problem::{Origin, Problem, ProblemKind};
use serde_json::value::RawValue;

use super::conversation::Conversation;
use super::json::{self, Fields};
use super::model_request::{CallResult, CallerSettings, Foreign, ModelRequest, Prepared, UNSERVED_FIELDS};
use super::past::PastRuns;
use super::{chat_completions, messages, past, responses};

/// A wire that callers may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerWire {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
}

/// A wire that models may be called in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelWire {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
}

/// The wires between which one request's answers are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wires {
    /// The caller's.
    pub caller: CallerWire,
    /// The model's.
    pub model: ModelWire,
}

impl Wires {
    /// The caller's own wire if the model is `served` in it, else the one that is translated best.
    pub fn choose(caller: ApiFormat, served: &[ApiFormat]) -> Result<Self, Problem> {
        let caller = match caller {
            ApiFormat::Messages => CallerWire::Messages,
            ApiFormat::ChatCompletions => CallerWire::ChatCompletions,
            ApiFormat::Responses => CallerWire::Responses,
        };
        let best_first = match caller {
            CallerWire::Messages => [ModelWire::Messages, ModelWire::ChatCompletions, ModelWire::Responses],
            CallerWire::ChatCompletions => [ModelWire::ChatCompletions, ModelWire::Messages, ModelWire::Responses],
            CallerWire::Responses => [ModelWire::Responses, ModelWire::ChatCompletions, ModelWire::Messages],
        };
        let model = best_first.iter().find(|wire| served.contains(&wire.format())).copied().ok_or_else(not_served)?;
        Ok(Self { caller, model })
    }

    /// The caller and the model speak the same wire: what nobody here understands survives.
    pub fn are_same(self) -> bool {
        match (self.caller, self.model) {
            (CallerWire::Messages, ModelWire::Messages)
            | (CallerWire::ChatCompletions, ModelWire::ChatCompletions)
            | (CallerWire::Responses, ModelWire::Responses) => true,
            (CallerWire::Messages, ModelWire::ChatCompletions | ModelWire::Responses)
            | (CallerWire::ChatCompletions, ModelWire::Messages | ModelWire::Responses)
            | (CallerWire::Responses, ModelWire::Messages | ModelWire::ChatCompletions) => false,
        }
    }

    /// What becomes of a provider's own blocks and items in the history: its own models know them, those of another
    /// server of the same wire do not. Where nobody knows the provider they stay.
    fn foreign(self, provider: Option<ProviderKind>) -> Foreign {
        let own = match self.model {
            ModelWire::Messages => ProviderKind::Anthropic,
            ModelWire::Responses => ProviderKind::Openai,
            ModelWire::ChatCompletions => return Foreign::Stays,
        };
        if provider.is_none_or(|provider| provider == own) { Foreign::Stays } else { Foreign::Told }
    }

    /// The caller's request as the model of this `provider` is to get it. `upstream_model` replaces the model's name;
    /// `past` knows what ran and may not come back.
    pub fn prepare(
        self,
        body: &[u8],
        run: &Run,
        provider: Option<ProviderKind>,
        upstream_model: Option<&str>,
        past: &dyn PastRuns,
    ) -> Result<Prepared, Problem> {
        let unserved = check(body)?;
        let restored = past::restore(self.caller, body, run, past);
        let body = restored.as_ref().and_then(|restored| restored.body.as_deref()).unwrap_or(body);
        let mut caller = self.caller.settings(body, run, self.are_same())?;
        caller.place = restored.as_ref().map(|restored| restored.place);
        let foreign = self.foreign(provider);
        let mut prepared = match (self.caller, self.model) {
            (CallerWire::Messages, ModelWire::Messages) => messages::edit(body, run, upstream_model, foreign)?,
            (CallerWire::Responses, ModelWire::Responses) => responses::edit(body, run, upstream_model, foreign)?,
            (CallerWire::ChatCompletions, ModelWire::ChatCompletions) => {
                chat_completions::edit(body, run, upstream_model)?
            }
            (caller, ModelWire::ChatCompletions) => {
                chat_completions::emit(caller.parse(body, run)?, run, upstream_model)
            }
            (caller, ModelWire::Responses) => responses::emit(caller.parse(body, run)?, run, upstream_model),
            (caller, ModelWire::Messages) => messages::emit(caller.parse(body, run)?, run, upstream_model),
        };
        prepared.dropped.append(&mut caller.dropped);
        prepared.dropped.extend(unserved.into_iter().map(str::to_owned));
        Ok(Prepared { caller, ..prepared })
    }
}

impl CallerWire {
    /// What the answer needs of the request.
    fn settings(self, body: &[u8], run: &Run, same_wire: bool) -> Result<CallerSettings, Problem> {
        match self {
            Self::Messages | Self::ChatCompletions => Ok(CallerSettings::default()),
            Self::Responses => responses::settings(body, run, same_wire),
        }
    }

    /// The request in no wire's words.
    fn parse(self, body: &[u8], run: &Run) -> Result<Conversation, Problem> {
        match self {
            Self::Messages => messages::parse(body, run),
            Self::ChatCompletions => chat_completions::parse(body, run),
            Self::Responses => responses::parse(body, run),
        }
    }
}

impl ModelWire {
    /// Path of the endpoint at a provider.
    pub fn path(self) -> &'static str {
        match self {
            Self::Messages => messages::PATH,
            Self::ChatCompletions => chat_completions::PATH,
            Self::Responses => responses::PATH,
        }
    }

    /// Appends the results of a turn's calls to the history.
    pub fn append_results(self, request: &mut ModelRequest, results: &[CallResult]) {
        match self {
            Self::Messages => request.append(messages::results_entry(results.iter()).as_bytes()),
            Self::ChatCompletions => {
                for result in results {
                    request.append(chat_completions::result_entry(result).as_bytes());
                }
            }
            Self::Responses => {
                for result in results {
                    request.append(responses::result_entry(result).as_bytes());
                }
            }
        }
    }

    /// An error object, from a stream or a body.
    pub fn parse_error(self, data: &[u8]) -> Problem {
        match self {
            Self::Messages => messages::parse_error(data),
            Self::ChatCompletions => chat_completions::parse_error(data),
            Self::Responses => responses::parse_error(data),
        }
    }

    fn format(self) -> ApiFormat {
        match self {
            Self::Messages => ApiFormat::Messages,
            Self::ChatCompletions => ApiFormat::ChatCompletions,
            Self::Responses => ApiFormat::Responses,
        }
    }
}

/// Values in a request of a run: each is a piece of memory of its own while the request is turned into another.
const MAX_REQUEST_VALUES: usize = 250_000;
/// Entries of `tools` in such a request; providers take a few hundred.
const MAX_TOOLS: usize = 4096;

/// Refuses a request of too many parts; of any other, tells what it asks for and nobody gives.
fn check(body: &[u8]) -> Result<Vec<&'static str>, Problem> {
    if !json::has_at_most(body, MAX_REQUEST_VALUES) {
        let message = format!("the request holds more than {MAX_REQUEST_VALUES} JSON values: send a shorter history");
        return Err(Problem::invalid(message));
    }
    let fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
    if fields.read::<Vec<&RawValue>>("tools").is_some_and(|tools| tools.len() > MAX_TOOLS) {
        let message = format!("`tools` has more than {MAX_TOOLS} entries: declare fewer");
        return Err(Problem::invalid(message).with_param("tools"));
    }
    let is_asked = |name: &&str| fields.get(name).is_some_and(|value| value.get() != "null");
    Ok(UNSERVED_FIELDS.iter().copied().filter(is_asked).collect())
}

fn not_served() -> Problem {
    let message = "the model is served in no wire that this gateway speaks: have its `wires` corrected";
    Problem::new(ProblemKind::InvalidRequest, Origin::Gateway, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_very_many_parts_is_refused_before_it_is_taken_apart() {
        let list = |entry: &str, count: usize| format!("[{}]", vec![entry; count].join(","));
        let refused = |body: &str| check(body.as_bytes()).unwrap_err();
        let body = format!(r#"{{"messages":[{{"content":{}}}]}}"#, list("1", MAX_REQUEST_VALUES));
        assert!(refused(&body).message.contains("JSON values"));
        let body = format!(r#"{{"tools":{}}}"#, list("{}", MAX_TOOLS + 1));
        assert_eq!(refused(&body).param.as_deref(), Some("tools"));
        // A long text is one value, whatever stands in it.
        let body = format!(
            r#"{{"messages":[{{"content":"{}"}}],"tools":{}}}"#,
            ",".repeat(MAX_REQUEST_VALUES),
            list("{}", MAX_TOOLS)
        );
        check(body.as_bytes()).unwrap();
    }

    #[test]
    fn what_nobody_serves_is_named() {
        let body = br#"{"guardrails":[],"tools_header":null,"session_label":"x","model":"m"}"#;
        assert_eq!(check(body).unwrap(), ["guardrails", "session_label"]);
    }

    #[test]
    fn the_callers_own_wire_comes_first() {
        use ApiFormat::{ChatCompletions, Messages, Responses};
        let model = |served: &[ApiFormat]| Wires::choose(Messages, served).map(|wires| wires.model).ok();
        assert_eq!(model(&[ChatCompletions, Messages]), Some(ModelWire::Messages));
        assert_eq!(model(&[Responses, ChatCompletions]), Some(ModelWire::ChatCompletions));
        assert_eq!(model(&[Responses]), Some(ModelWire::Responses));
        let model = |served: &[ApiFormat]| Wires::choose(ChatCompletions, served).map(|wires| wires.model).ok();
        assert_eq!(model(&[Messages, ChatCompletions]), Some(ModelWire::ChatCompletions));
        assert_eq!(model(&[Responses, Messages]), Some(ModelWire::Messages));
        let model = |served: &[ApiFormat]| Wires::choose(Responses, served).map(|wires| wires.model).ok();
        assert_eq!(model(&[ChatCompletions, Responses]), Some(ModelWire::Responses));
        assert_eq!(model(&[Messages, ChatCompletions]), Some(ModelWire::ChatCompletions));
        assert_eq!(model(&[Messages]), Some(ModelWire::Messages));
        assert_eq!(model(&[]), None);
    }
}
