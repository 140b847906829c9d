//! The whole loop over real TCP: a scripted model, a sandbox of canned results, and the client's bytes.

mod answers;
mod broken;
mod canned;
mod chat_caller;
mod chat_script;
mod failures;
mod files;
mod files_told;
mod headers;
mod history;
mod leaving;
mod mixed;
mod namespaces;
mod pairs;
mod properties;
mod responses;
mod sans;
mod scripts;
mod seeds;
mod stored;
mod support;
mod together;
mod tools;
mod transcripts;
mod workspaces;
