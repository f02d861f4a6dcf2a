//! Many futures abreast, a few of them at a time.

use std::pin::Pin;
use std::task::Poll;

/// A future, or what it came to.
enum Runner<F: Future> {
    Waiting(Pin<Box<F>>),
    Done(F::Output),
}

/// Waits for all, so many at once; what they came to is in their order.
pub(crate) async fn abreast<F: Future>(most: usize, futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut runners: Vec<Runner<F>> = futures.into_iter().map(|future| Runner::Waiting(Box::pin(future))).collect();
    std::future::poll_fn(|cx| {
        let mut running = 0;
        for runner in &mut runners {
            let Runner::Waiting(future) = runner else { continue };
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *runner = Runner::Done(output),
                Poll::Pending => running += 1,
            }
            if running == most.max(1) {
                break;
            }
        }
        if running == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let done = runners.into_iter().filter_map(|runner| match runner {
        Runner::Done(output) => Some(output),
        Runner::Waiting(_) => None,
    });
    done.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn all_are_done_in_their_order_and_never_too_many_at_once() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let one = async |number: u64| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            for _ in number..10 {
                tokio::task::yield_now().await;
            }
            running.set(running.get() - 1);
            number
        };
        let done = abreast(3, (0..7).map(&one)).await;
        assert_eq!((done, most.get()), (vec![0, 1, 2, 3, 4, 5, 6], 3));
        assert_eq!(abreast(3, std::iter::empty::<std::future::Ready<()>>()).await, []);
        assert_eq!(abreast(0, [std::future::ready(1)]).await, [1]);
    }
}
