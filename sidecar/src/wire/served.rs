//! The wires that code execution is served in: which a caller may speak, which a model may be called in.
//!
//! INVARIANT: chosen once per request, here; a wire that is built is a variant, and the compiler names every place that
//! has to know it.

use decision::decide::Run;
use decision::format::ApiFormat;
use decision::problem::{Origin, Problem, ProblemKind};

use super::model_request::{CallResult, ModelRequest, Prepared};
use super::{chat_completions, messages, responses};

/// A wire that callers may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerWire {
    /// Anthropic Messages.
    Messages,
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
            ApiFormat::ChatCompletions | ApiFormat::Responses => return Err(not_served()),
        };
        let best_first = match caller {
            CallerWire::Messages => [ModelWire::Messages, ModelWire::ChatCompletions, ModelWire::Responses],
        };
        let model = best_first.into_iter().find(|wire| served.contains(&wire.format())).ok_or_else(not_served)?;
        Ok(Self { caller, model })
    }

    /// The caller and the model speak the same wire: what nobody here understands survives.
    pub fn are_same(self) -> bool {
        match (self.caller, self.model) {
            (CallerWire::Messages, ModelWire::Messages) => true,
            (CallerWire::Messages, ModelWire::ChatCompletions | ModelWire::Responses) => false,
        }
    }

    /// The caller's request as the model is to get it. `upstream_model` replaces the model's name.
    pub fn prepare(self, body: &[u8], run: &Run, upstream_model: Option<&str>) -> Result<Prepared, Problem> {
        match (self.caller, self.model) {
            (CallerWire::Messages, ModelWire::Messages) => messages::edit(body, run, upstream_model),
            (CallerWire::Messages, ModelWire::ChatCompletions) => {
                let conversation = messages::parse(body, run)?;
                Ok(chat_completions::emit(conversation, run, upstream_model))
            }
            (CallerWire::Messages, ModelWire::Responses) => {
                let conversation = messages::parse(body, run)?;
                Ok(responses::emit(conversation, run, upstream_model))
            }
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
            Self::Messages => request.append(&messages::results_entry(results)),
            Self::ChatCompletions => {
                for result in results {
                    request.append(&chat_completions::result_entry(result));
                }
            }
            Self::Responses => {
                for result in results {
                    request.append(&responses::result_entry(result));
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

fn not_served() -> Problem {
    let message = "code execution is served on /v1/messages, with models that speak Messages or Chat Completions";
    Problem::new(ProblemKind::InvalidRequest, Origin::Caller, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_own_wire_comes_first() {
        use ApiFormat::{ChatCompletions, Messages, Responses};
        let model = |served: &[ApiFormat]| Wires::choose(Messages, served).map(|wires| wires.model).ok();
        assert_eq!(model(&[ChatCompletions, Messages]), Some(ModelWire::Messages));
        assert_eq!(model(&[Responses, ChatCompletions]), Some(ModelWire::ChatCompletions));
        assert_eq!(model(&[Responses]), Some(ModelWire::Responses));
        assert!(Wires::choose(Responses, &[Responses, Messages]).is_err());
    }
}
