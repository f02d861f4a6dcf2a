//! Questions to the user during a turn: approvals of tool calls, elicitations of servers and sign-ins.

use ropeway_agent::{Approval, ApprovalRequest};
use ropeway_mcp::{Elicitation, ElicitationAnswer};
use tokio::sync::oneshot;

use crate::sign_in::offer::SignInQuestion;

/// A question that the user answers during a turn.
pub(crate) enum Question {
    /// Asks whether a tool may be called.
    Call(Box<ApprovalRequest>, oneshot::Sender<Approval>),
    /// A server asks for input.
    Server(Box<Elicitation>, oneshot::Sender<ElicitationAnswer>),
    /// A server needs a sign-in.
    SignIn(SignInQuestion),
}

/// The effect of a question on the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionOutcome {
    /// The turn continues.
    Continue,
    /// Ctrl-C at a server's question declines it; the next Ctrl-C cancels the turn.
    Decline,
    /// Ctrl-C cancels the turn.
    Interrupt,
    /// The user chose to end the turn.
    Quit,
}
