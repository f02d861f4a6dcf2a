//! Questions to the user during a turn: tool call approvals, elicitation requests and sign-ins.

use ropeway_agent::{Approval, ApprovalRequest};
use ropeway_mcp::{Elicitation, ElicitationAnswer};
use tokio::sync::oneshot;

use crate::sign_in::offer::SignInQuestion;

/// A question that the user answers during a turn.
pub(crate) enum Question {
    /// Asks whether a tool may be called.
    Call(Box<ApprovalRequest>, oneshot::Sender<Approval>),
    /// A server requests input.
    Server(Box<Elicitation>, oneshot::Sender<ElicitationAnswer>),
    /// A server needs a sign-in.
    SignIn(SignInQuestion),
}

/// How a question affects the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionOutcome {
    /// The turn continues.
    Continue,
    /// Ctrl-C at a server's request declines it; the next Ctrl-C cancels the turn.
    Decline,
    /// Ctrl-C cancels the turn.
    Interrupt,
    /// The user chose to end the turn.
    Quit,
}
