//! Why a request went where it went, in a code for machines and in words for people.
//!
//! INVARIANT: closed; metrics, the access log, the corpus and `explain` use these codes.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident $code:literal $words:literal)*) => {
        /// Why a request went where it went.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $words] $name),* }

        impl Reason {
            /// Every reason, in a fixed order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// `snake_case`, for metrics and logs.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// One sentence.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words),* }
            }
        }
    };
}

reasons! {
    // Not decided here at all.
    NotInference "not_inference" "The path is not one of the inference endpoints, so nothing is decided."
    OwnCall "own_call" "The sidecar's own call to a model passes without inspection."
    // To the provider.
    NoCodeTool "no_code_tool" "The request declares no code tool."
    ProviderNative "provider_native" "The provider runs the declared tool by itself."
    ProviderByHeader "provider_by_header" "The request's header gives the code to the provider."
    ProviderByPin "provider_by_pin" "The workspace pins code to the provider."
    ProviderByDefault "provider_by_default" "The deployment's default gives the code to the provider."
    SandboxOff "sandbox_off" "No sandbox is configured, so the declaration is forwarded as it is."
    // To this gateway.
    OtariExplicit "otari_explicit" "The request declares the gateway's own code tool."
    OtariNotNative "otari_not_native" "The provider cannot run the declared tool on this endpoint, so the gateway does."
    OtariByHeader "otari_by_header" "The request's header gives the code to this gateway."
    OtariByPin "otari_by_pin" "The workspace pins code to this gateway."
    OtariByDefault "otari_by_default" "The deployment's default gives the code to this gateway."
    OtariByContainer "otari_by_container" "The request continues a container of this gateway."
    // Only the sidecar can tell.
    PolicyMissing "policy_missing" "No policy snapshot has arrived yet."
    PolicyStale "policy_stale" "The policy snapshot is too old to decide on."
    KeyUnverified "key_unverified" "The key is not in the policy snapshot, or there is none to look it up in."
    // Refused before the body.
    PathMisspelled "path_misspelled" "The path could be read as an endpoint, but is not spelled like one."
    KeyMisplaced "key_misplaced" "A key of this gateway stands where it would travel on to the provider."
    HeaderInvalid "header_invalid" "The code-execution header holds none of its three words."
    HeaderDuplicate "header_duplicate" "A header that may come once came more than once, or its two spellings disagree."
    HeaderUnreadable "header_unreadable" "A header that names the caller is not readable text."
    KeyMissing "key_missing" "The request brings no key."
    KeyUnknown "key_unknown" "The key is not known."
    IdentityMissing "identity_missing" "The mesh named no user and workspace."
    MethodNotAllowed "method_not_allowed" "The endpoint does not serve this method, or takes no body with it."
    BodyEncoded "body_encoded" "The body is compressed or not in UTF-8, so it cannot be inspected."
    BodyTooLarge "body_too_large" "The body is longer than the limit."
    BodyTooSlow "body_too_slow" "The body takes longer to arrive than it may."
    Overloaded "overloaded" "As many bytes of bodies wait for decisions as may."
    // Refused for the body.
    BodyMissing "body_missing" "The request has no body."
    BodyInvalid "body_invalid" "The body is not JSON that reads the same for everyone."
    ModelMissing "model_missing" "The request names no model."
    ModelNotFound "model_not_found" "No provider serves the model."
    NoRoute "no_route" "The request names no model, and there is more than one provider."
    // Refused by the rules of the executor.
    SandboxNotConfigured "sandbox_not_configured" "The request asks for a run here, but no sandbox is configured."
    PinConflict "pin_conflict" "The workspace pins who runs code, and the header asks for something else."
    PinnedElsewhere "pinned_elsewhere" "The workspace pins code to this gateway, and the endpoint has it run by the provider."
    CannotCombine "cannot_combine" "The gateway's own code tool stands beside one the provider runs."
    ContainerNotAtProvider "container_not_at_provider" "A container of this gateway does not exist at the provider."
    FileNotAtProvider "file_not_at_provider" "A file of this gateway is named where only its provider will look for it."
    ContainersDiffer "containers_differ" "The request names two containers of this gateway."
    McpWithRun "mcp_with_run" "MCP servers cannot be combined with a run here."
    WebSearchWithRun "web_search_with_run" "The gateway's web search cannot be combined with a run here."
    SkillsWithRun "skills_with_run" "Skills cannot be loaded into a run here."
    ParameterUnusable "parameter_unusable" "A parameter has a value that a run here cannot honour."
    ExecutionDisabled "execution_disabled" "The workspace does not allow code execution."
    ToolsNotServed "tools_not_served" "The workspace allows none of the tools the declaration stands for."
    ImageNotAllowed "image_not_allowed" "The workspace's sandbox image is not on the operator's list."
    // Ours to mend.
    PolicyUnavailable "policy_unavailable" "The policy could not be read, so nothing may run."
}

impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}
