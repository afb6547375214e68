//! The memory for what answers have beyond the usual limit: bounded for all of them together.
//!
//! A transfer that is beyond it takes part with the bytes that have really come, so a site that only promises many takes
//! nothing from others. Beyond the bound all of them rest but the one that takes part longest: it waits for no other one,
//! so that some transfer always comes to its end and gives its bytes back. All rest while the caller has no room.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{timeout, Instant};

#[derive(Default)]
struct State {
    bytes: usize,
    /// The transfers that take part, the one that does so longest first.
    shares: BTreeSet<u64>,
    made: u64,
    resting: bool,
}

/// Bytes of all transfers beyond the usual limit.
pub(crate) struct Large {
    bytes_max: usize,
    wait_max: Duration,
    state: Mutex<State>,
    news: Notify,
}

impl Large {
    /// At most `bytes_max` bytes, and for no transfer a longer wait than `wait_max` in all.
    pub(crate) fn new(bytes_max: usize, wait_max: Duration) -> Self {
        Self { bytes_max, wait_max, state: Mutex::default(), news: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all of them rest, or go on.
    pub(crate) fn rest(&self, resting: bool) {
        self.state().resting = resting;
        self.news.notify_waiters();
    }
}

/// The part of one transfer, given back however it ends.
pub(crate) struct Share<'a> {
    large: &'a Large,
    number: u64,
    bytes: usize,
    waited: Duration,
}

impl<'a> Share<'a> {
    pub(crate) fn of(large: &'a Large) -> Self {
        Self { large, number: 0, bytes: 0, waited: Duration::ZERO }
    }

    /// The transfer has so many bytes beyond the usual limit.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if bytes <= self.bytes {
            return;
        }
        let mut state = self.large.state();
        if self.bytes == 0 {
            state.made += 1;
            self.number = state.made;
            state.shares.insert(self.number);
        }
        state.bytes += bytes - self.bytes;
        self.bytes = bytes;
    }

    /// Whether the transfer may read more.
    pub(crate) fn goes_on(&self) -> bool {
        if self.bytes == 0 {
            return true;
        }
        let state = self.large.state();
        let is_first = state.shares.first() == Some(&self.number);
        !state.resting && (is_first || state.bytes <= self.large.bytes_max)
    }

    /// Waits until it may; false once it has waited too long in all.
    pub(crate) async fn has_room(&mut self) -> bool {
        let began = Instant::now();
        let waiting = async {
            loop {
                let news = self.large.news.notified();
                if self.goes_on() {
                    return;
                }
                news.await;
            }
        };
        let came = timeout(self.large.wait_max.saturating_sub(self.waited), waiting).await.is_ok();
        self.waited += began.elapsed();
        came
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.large.state();
            state.bytes -= self.bytes;
            state.shares.remove(&self.number);
            drop(state);
            self.large.news.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bound_the_first_goes_on_alone() {
        let large = Large::new(100, Duration::ZERO);
        let [mut first, mut second, usual] = [0; 3].map(|_| Share::of(&large));
        first.grow(60);
        second.grow(40);
        let on = |shares: [&Share<'_>; 3]| shares.map(Share::goes_on);
        assert_eq!([true, true, true], on([&first, &second, &usual]));
        second.grow(41);
        assert_eq!([true, false, true], on([&first, &second, &usual]));
        drop(first);
        assert!(second.goes_on());
        second.grow(500);
        assert!(second.goes_on());
        drop(second);
        let state = large.state();
        assert_eq!((0, true), (state.bytes, state.shares.is_empty()));
    }

    #[test]
    fn all_rest_while_the_caller_has_no_room() {
        let large = Large::new(100, Duration::ZERO);
        let mut one = Share::of(&large);
        one.grow(1);
        large.rest(true);
        assert!(!one.goes_on());
        large.rest(false);
        assert!(one.goes_on());
    }
}
