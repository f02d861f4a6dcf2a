//! The methods of the protocol that clients call.

use crate::protocol::Era;

/// A method of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
