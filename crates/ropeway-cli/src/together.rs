//! Futures that go on together.

use std::task::Poll;

/// Waits for all, each going on while the others wait.
pub(crate) async fn at_once<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, done) in futures.iter_mut().filter(|(_, done)| done.is_none()) {
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *done = Some(output),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}
