//! A chat before its first prompt: servers connect, and may need a sign-in.

use std::time::Duration;

use tokio::sync::mpsc;

use super::line_editor::LineEditor;
use super::question::Question;
use super::turn::answer_sign_in;
use crate::connect::arrival;
use crate::connect::session::Session;
use crate::failure::Failure;

/// Waits for servers for up to `patience`, without the time in which the user signs in. Returns the other questions, which the
/// first turn answers.
pub(crate) async fn wait_for_opening(
    session: &Session,
    editor: &LineEditor,
    questions: &mut mpsc::Receiver<Question>,
    patience: Duration,
) -> Result<Vec<Question>, Failure> {
    let mut others = Vec::new();
    loop {
        let question = tokio::select! {
            biased;
            Some(question) = questions.recv() => question,
            arrived = arrival::wait_within(session, patience) => return arrived.map(|()| others),
        };
        match question {
            Question::SignIn(question) => {
                answer_sign_in(question, &session.status, editor).await;
            }
            other => others.push(other),
        }
    }
}
