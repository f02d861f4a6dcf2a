//! The methods of the protocol that clients call.

use crate::protocol::Era;

/// A method of the protocol.
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

impl Method {
    /// Finds a method by its name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "logging/setLevel" => Self::SetLevel,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            "tools/list" => Self::ListTools,
            "tools/call" => Self::CallTool,
            "prompts/list" => Self::ListPrompts,
            "prompts/get" => Self::GetPrompt,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListTemplates,
            "resources/read" => Self::ReadResource,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            "completion/complete" => Self::Complete,
            "tasks/get" => Self::GetTask,
            "tasks/update" => Self::UpdateTask,
            "tasks/cancel" => Self::CancelTask,
            "tasks/list" => Self::ListTasks,
            "tasks/result" => Self::TaskResult,
            _ => return None,
        })
    }

    /// Returns the name of the method.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::SetLevel => "logging/setLevel",
            Self::Discover => "server/discover",
            Self::Listen => "subscriptions/listen",
            Self::ListTools => "tools/list",
            Self::CallTool => "tools/call",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::ListResources => "resources/list",
            Self::ListTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::Complete => "completion/complete",
            Self::GetTask => "tasks/get",
            Self::UpdateTask => "tasks/update",
            Self::CancelTask => "tasks/cancel",
            Self::ListTasks => "tasks/list",
            Self::TaskResult => "tasks/result",
        }
    }

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
