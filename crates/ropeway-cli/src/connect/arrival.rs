//! Waiting for servers without letting one that hangs delay the others.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use ropeway_bridge::registry::{ServerState, ServerStatus};
use tokio::time::Instant;

use crate::connect::advice::{is_available, is_pending};
use crate::connect::session::Session;
use crate::connect::waiting::BRIEF_PATIENCE;
use crate::failure::Failure;

/// How long a ready server waits for those before it in the file, to keep the file's order.
const HOLD: Duration = Duration::from_millis(500);

/// Time limit for servers with cached tools.
pub(crate) const REMEMBERED_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for all servers and calls `show` with the indices of those that became ready or failed. Every server is shown once;
/// those that timed out are shown last. Servers for which `is_remembered` returns `true` have a shorter time limit. If the list
/// `is_brief`, all servers have it once one is available, unless `--timeout` sets one.
pub(crate) async fn for_each_ready(
    session: &Session,
    is_brief: bool,
    is_remembered: impl Fn(usize) -> bool,
    mut show: impl FnMut(&[usize]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let patience = if is_brief { BRIEF_PATIENCE } else { REMEMBERED_PATIENCE };
    let give_up = Instant::now() + patience;
    let is_any_there = || session.bridge.statuses().iter().any(|status| is_available(&status.state));
    let may_give_up = |order: &DisplayOrder| {
        session.deadline.is_none() && (order.unsettled().all(&is_remembered) || (is_brief && is_any_there()))
    };
    let mut order = DisplayOrder::new(session.bridge.statuses().len());
    {
        let mut arrive = pin!(session.wait_for_servers());
        loop {
            let known = order.settled();
            let changed = session.bridge.until_statuses(|statuses| settled(session, statuses) != known);
            let due_at = order.due_at();
            let due = async {
                match due_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                arrived = &mut arrive => {
                    arrived?;
                    break;
                }
                statuses = changed => order.settle(settled(session, &statuses), Instant::now()),
                () = due => {}
                () = tokio::time::sleep_until(give_up), if may_give_up(&order) => break,
            }
            let due = order.take_due(Instant::now());
            if !due.is_empty() {
                show(&due)?;
            }
        }
    }
    let rest = order.take_rest();
    if rest.is_empty() { Ok(()) } else { show(&rest) }
}

/// Waits for all servers, or until `patience` has passed and one is available. `--timeout` takes precedence.
pub(crate) async fn wait_for_most(session: &Session, patience: Duration) -> Result<(), Failure> {
    if session.deadline.is_some() {
        return session.wait_for_servers().await;
    }
    let enough = async {
        tokio::time::sleep(patience).await;
        session.bridge.until_statuses(|statuses| statuses.iter().any(|status| is_available(&status.state))).await
    };
    tokio::select! {
        biased;
        arrived = session.wait_for_servers() => arrived,
        _ = enough => Ok(()),
    }
}

/// Waits for all servers, but at most `patience`.
pub(crate) async fn wait_within(session: &Session, patience: Duration) -> Result<(), Failure> {
    tokio::time::timeout(patience, session.wait_for_servers()).await.unwrap_or(Ok(()))
}

/// Returns the indices of servers that are no longer connecting.
fn settled(session: &Session, statuses: &[ServerStatus]) -> BTreeSet<usize> {
    let is_settled = |status: &ServerStatus| match status.state {
        // A cached server is being started.
        ServerState::Cached { .. } => !session.eager,
        ref state => !is_pending(state),
    };
    (0..statuses.len()).filter(|at| is_settled(&statuses[*at])).collect()
}

struct DisplayOrder {
    /// The time at which each server settled.
    since: Vec<Option<Instant>>,
    shown: BTreeSet<usize>,
}

impl DisplayOrder {
    fn new(count: usize) -> Self {
        Self { since: vec![None; count], shown: BTreeSet::new() }
    }

    fn settled(&self) -> BTreeSet<usize> {
        (0..self.since.len()).filter(|at| self.since[*at].is_some()).collect()
    }

    fn unsettled(&self) -> impl Iterator<Item = usize> {
        (0..self.since.len()).filter(|at| self.since[*at].is_none())
    }

    /// Updates the settled servers. A settled server may be connecting again.
    fn settle(&mut self, settled: BTreeSet<usize>, now: Instant) {
        for (at, since) in self.since.iter_mut().enumerate() {
            *since = settled.contains(&at).then(|| since.unwrap_or(now));
        }
    }

    /// Returns `true` if all servers before this one are shown or settled.
    fn is_next(&self, at: usize) -> bool {
        (0..at).all(|before| self.shown.contains(&before) || self.since[before].is_some())
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, Instant)> {
        let waiting = self.since.iter().enumerate().filter(|(at, _)| !self.shown.contains(at));
        waiting.filter_map(|(at, since)| Some((at, (*since)?)))
    }

    /// Returns the time at which the next settled server is shown at the latest.
    fn due_at(&self) -> Option<Instant> {
        self.waiting().map(|(_, since)| since + HOLD).min()
    }

    fn take_due(&mut self, now: Instant) -> Vec<usize> {
        // Servers shown together keep the file's order. A due server takes the settled ones before it along.
        let last =
            self.waiting().filter(|(at, since)| self.is_next(*at) || *since + HOLD <= now).map(|(at, _)| at).max();
        let due: Vec<usize> =
            self.waiting().map(|(at, _)| at).filter(|at| last.is_some_and(|last| *at <= last)).collect();
        self.shown.extend(&due);
        due
    }

    fn take_rest(&mut self) -> Vec<usize> {
        let rest: Vec<usize> = (0..self.since.len()).filter(|at| !self.shown.contains(at)).collect();
        self.shown.extend(&rest);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_servers_keep_the_order_of_the_file_and_slow_ones_come_last() {
        let start = Instant::now();
        let after = |millis: u64| start + Duration::from_millis(millis);
        let mut order = DisplayOrder::new(4);
        order.settle(BTreeSet::from([1, 3]), after(10));
        assert_eq!(order.take_due(after(10)), [0usize; 0]);
        order.settle(BTreeSet::from([0, 1, 3]), after(20));
        assert_eq!(order.take_due(after(20)), [0, 1]);
        assert_eq!(order.due_at(), Some(after(510)));
        assert_eq!(order.take_due(after(510)), [3]);
        assert_eq!((order.due_at(), order.take_rest()), (None, vec![2]));
        assert_eq!(order.take_rest(), [0usize; 0]);
    }
}
