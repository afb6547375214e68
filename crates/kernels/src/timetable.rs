//! When each resting host may be visited again, exact to the microsecond.
//!
//! An ordered tree of (instant, row), not a wheel: a wheel must either be late or sort a slot when it is opened, and one
//! slot can hold the whole world when all hosts are blocked until the same instant. The tree's dearest step is one split.

use std::collections::BTreeSet;

use crate::rows::Rows;

/// Bookings of hosts; each host has one at most.
pub struct Timetable {
    booked: BTreeSet<(i64, u32)>,
    until: Rows<i64>,
}

impl Default for Timetable {
    fn default() -> Self {
        Self { booked: BTreeSet::new(), until: Rows::new(-1) }
    }
}

impl Timetable {
    /// Books the host; an earlier booking of it lapses.
    pub fn rest(&mut self, host: u32, until: i64) {
        let place = self.until.place(host);
        if *place == until {
            return;
        }
        if *place >= 0 {
            self.booked.remove(&(*place, host));
        }
        *place = until;
        self.booked.insert((until, host));
    }

    /// Ends the host's booking, if it has one.
    pub fn cancel(&mut self, host: u32) {
        let until = *self.until.get(host);
        if until >= 0 {
            self.booked.remove(&(until, host));
            *self.until.place(host) = -1;
        }
    }

    /// The next host whose time has come, in the order of (instant, row); its booking ends.
    pub fn pop_due(&mut self, now: i64) -> Option<u32> {
        let &(until, host) = self.booked.first()?;
        if until > now {
            return None;
        }
        self.booked.pop_first();
        *self.until.place(host) = -1;
        Some(host)
    }

    /// The earliest booking.
    pub fn next(&self) -> Option<i64> {
        self.booked.first().map(|&(until, _)| until)
    }

    /// The instant the host is booked at, -1 when it is not.
    pub fn until(&self, host: u32) -> i64 {
        *self.until.get(host)
    }

    /// How many hosts are booked.
    pub fn len(&self) -> usize {
        self.booked.len()
    }

    /// Whether no host is booked.
    pub fn is_empty(&self) -> bool {
        self.booked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_in_the_order_of_their_instants_each_once() {
        let mut timetable = Timetable::default();
        for (host, until) in [(3, 20), (1, 10), (2, 20), (4, 30), (1, 25)] {
            timetable.rest(host, until);
        }
        let due: Vec<u32> = std::iter::from_fn(|| timetable.pop_due(29)).collect();
        assert_eq!(vec![2, 3, 1], due);
        assert_eq!((Some(30), 1), (timetable.next(), timetable.len()));
    }
}
