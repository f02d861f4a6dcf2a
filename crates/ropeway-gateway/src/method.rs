//! The protocol methods that clients call.

use ropeway_core::conversions::names;
use ropeway_mcp::protocol::Era;

/// A protocol method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Method {
    Initialize,
    Ping,
    SetLevel,
    Discover,
    Listen,
    ListTools,
    CallTool,
    ListPrompts,
    GetPrompt,
    ListResources,
    ListTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    Complete,
    GetTask,
    UpdateTask,
    CancelTask,
    ListTasks,
    TaskResult,
}

/// The eras in which a method exists.
enum Eras {
    Legacy,
    Modern,
    Both,
}

names!(pub(crate) Method, as_str: "the name of the method" {
    Initialize => "initialize";
    Ping => "ping";
    SetLevel => "logging/setLevel";
    Discover => "server/discover";
    Listen => "subscriptions/listen";
    ListTools => "tools/list";
    CallTool => "tools/call";
    ListPrompts => "prompts/list";
    GetPrompt => "prompts/get";
    ListResources => "resources/list";
    ListTemplates => "resources/templates/list";
    ReadResource => "resources/read";
    Subscribe => "resources/subscribe";
    Unsubscribe => "resources/unsubscribe";
    Complete => "completion/complete";
    GetTask => "tasks/get";
    UpdateTask => "tasks/update";
    CancelTask => "tasks/cancel";
    ListTasks => "tasks/list";
    TaskResult => "tasks/result";
});

impl Method {
    /// Returns the parameter that names the target, which modern clients repeat in the header `Mcp-Name`.
    pub(crate) fn target(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource | Self::Subscribe | Self::Unsubscribe => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask | Self::TaskResult => Some("taskId"),
            _ => None,
        }
    }

    fn eras(self) -> Eras {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::ListTasks
            | Self::TaskResult => Eras::Legacy,
            Self::Discover | Self::Listen | Self::UpdateTask => Eras::Modern,
            _ => Eras::Both,
        }
    }

    /// Returns `true` if the method exists in an era.
    pub(crate) fn is_in(self, era: Era) -> bool {
        match self.eras() {
            Eras::Both => true,
            Eras::Legacy => era == Era::Legacy,
            Eras::Modern => era == Era::Modern,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_found_by_its_name() {
        for name in [
            "initialize",
            "ping",
            "logging/setLevel",
            "server/discover",
            "subscriptions/listen",
            "tools/list",
            "tools/call",
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "completion/complete",
            "tasks/get",
            "tasks/update",
            "tasks/cancel",
            "tasks/list",
            "tasks/result",
        ] {
            assert_eq!(Method::parse(name).map(Method::as_str), Some(name));
        }
    }
}
