//! When each resting host may be visited again, exact to the microsecond.
//!
//! Not a wheel: a wheel must either be late or sort a slot when it is opened, and one slot can hold the whole world when
//! all hosts are blocked until the same instant. Not one heap: each host that leaves it costs a walk through all of its
//! levels, a cache miss each. Here the bookings are cut into leaves of some hundred hosts, by instant and row: within a
//! leaf in no order, the next to come sorted. A leaf that grows too large is halved, whatever its instants are, so no
//! step sorts or copies more than one.

use crate::rows::Rows;

/// A leaf of more hosts is halved.
const LEAF_MAX: usize = 1024;
/// A leaf of fewer hosts joins the one before it.
const LEAF_MIN: usize = 64;
const NOT_BOOKED: i64 = -1;

/// Instant and row in one number of the same order.
type Booking = u128;

fn booking(until: i64, host: u32) -> Booking {
    (until as Booking) << 32 | Booking::from(host)
}

fn until_of(booking: Booking) -> i64 {
    (booking >> 32) as i64
}

/// Bookings of hosts; each host has one at most.
pub struct Timetable {
    /// The next to come, the earliest last; empty only where nobody is booked.
    front: Vec<Booking>,
    /// All others, the latest first; a leaf holds what is not below its least booking, but below that of the leaf before.
    leaves: Vec<Vec<u32>>,
    least: Vec<Booking>,
    until_of: Rows<i64>,
    count: usize,
}

impl Default for Timetable {
    fn default() -> Self {
        Self {
            front: Vec::new(),
            leaves: Vec::new(),
            least: Vec::new(),
            until_of: Rows::new(NOT_BOOKED),
            count: 0,
        }
    }
}

impl Timetable {
    /// Books the host; an earlier booking of it lapses.
    pub fn rest(&mut self, host: u32, until: i64) {
        let before = std::mem::replace(self.until_of.place(host), until);
        if before == until {
            return;
        }
        if before == NOT_BOOKED {
            self.count += 1;
        } else {
            self.remove(booking(before, host));
        }
        self.insert(booking(until, host));
        self.advance();
    }

    /// Touches the bookings of these hosts, so that the misses of a batch overlap.
    pub fn touch(&self, hosts: impl Iterator<Item = u32>) {
        std::hint::black_box(hosts.fold(0, |seen, host| seen ^ self.until_of.get(host)));
    }

    /// Ends the host's booking, if it has one.
    pub fn cancel(&mut self, host: u32) {
        let until = *self.until_of.get(host);
        if until != NOT_BOOKED {
            *self.until_of.place(host) = NOT_BOOKED;
            self.count -= 1;
            self.remove(booking(until, host));
            self.advance();
        }
    }

    /// The next host whose time has come, in the order of (instant, row); its booking ends.
    pub fn pop_due(&mut self, now: i64) -> Option<u32> {
        let host = *self.front.last().filter(|&&first| until_of(first) <= now)? as u32;
        self.front.pop();
        *self.until_of.place(host) = NOT_BOOKED;
        self.count -= 1;
        self.advance();
        Some(host)
    }

    /// The earliest booking.
    pub fn next(&self) -> Option<i64> {
        self.front.last().map(|&first| until_of(first))
    }

    /// The instant the host is booked at, -1 when it is not.
    pub fn until(&self, host: u32) -> i64 {
        *self.until_of.get(host)
    }

    /// How many hosts are booked.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no host is booked.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The leaf of a booking; beyond the last one where it belongs in front of them all.
    fn leaf_of(&self, booking: Booking) -> usize {
        self.least.partition_point(|&least| least > booking)
    }

    fn insert(&mut self, booking: Booking) {
        let at = self.leaf_of(booking);
        if let Some(leaf) = self.leaves.get_mut(at) {
            if leaf.len() == leaf.capacity() {
                leaf.reserve_exact((leaf.len() / 4).max(4));
            }
            leaf.push(booking as u32);
            if leaf.len() > LEAF_MAX {
                self.halve(at);
            }
            return;
        }
        let place = self.front.partition_point(|&other| other > booking);
        self.front.insert(place, booking);
        if self.front.len() > LEAF_MAX {
            let later = self.front.drain(..LEAF_MAX / 2);
            self.least.push(later.as_slice()[LEAF_MAX / 2 - 1]);
            self.leaves.push(later.map(|booking| booking as u32).collect());
        }
    }

    fn remove(&mut self, booking: Booking) {
        let at = self.leaf_of(booking);
        let Some(leaf) = self.leaves.get_mut(at) else {
            if let Ok(place) = self.front.binary_search_by(|other| booking.cmp(other)) {
                self.front.remove(place);
            }
            return;
        };
        if let Some(place) = leaf.iter().position(|&host| host == booking as u32) {
            leaf.swap_remove(place);
        }
        if leaf.len() < LEAF_MIN {
            self.join(at);
        }
    }

    /// Sorts the next leaf when all before it are gone.
    fn advance(&mut self) {
        while self.front.is_empty() {
            let Some(hosts) = self.leaves.pop() else { return };
            self.least.pop();
            self.front = self.bookings(&hosts);
            self.front.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    fn bookings(&self, hosts: &[u32]) -> Vec<Booking> {
        hosts.iter().map(|&host| booking(*self.until_of.get(host), host)).collect()
    }

    /// The later half of a leaf becomes one of its own.
    fn halve(&mut self, at: usize) {
        let mut bookings = self.bookings(&self.leaves[at]);
        let half = bookings.len() / 2;
        let (_, &mut middle, _) = bookings.select_nth_unstable(half);
        let hosts = |some: &[Booking]| some.iter().map(|&booking| booking as u32).collect();
        let (earlier, later) = bookings.split_at(half);
        self.leaves[at] = hosts(earlier);
        self.leaves.insert(at, hosts(later));
        self.least.insert(at, middle);
    }

    /// A leaf that has become short joins the one that comes before it in time, if there is one.
    fn join(&mut self, at: usize) {
        if at + 1 < self.leaves.len() {
            let hosts = self.leaves.remove(at);
            self.least.remove(at);
            self.leaves[at].extend_from_slice(&hosts);
            if self.leaves[at].len() > LEAF_MAX {
                self.halve(at);
            }
        } else if self.leaves[at].is_empty() {
            self.leaves.pop();
            self.least.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ready::mixed;

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

    /// Books and cancels by chance, so that leaves are halved and joined, and holds it against an ordered set.
    fn compared(hosts: u32, width: u64, rounds: u64) {
        let (mut timetable, mut expected) = (Timetable::default(), BTreeSet::new());
        let mut now = 0;
        for round in 0..rounds {
            let (one, other) = (mixed(1, round), mixed(2, round));
            let host = (one % u64::from(hosts)) as u32;
            expected.remove(&(timetable.until(host), host));
            // Times of many bookings, and of many cancellations.
            if other % 8 < if round / 4_096 % 2 == 0 { 7 } else { 2 } {
                let until = now + (other >> 8 & (width - 1)) as i64;
                timetable.rest(host, until);
                expected.insert((until, host));
            } else {
                timetable.cancel(host);
            }
            if round % 64 == 0 {
                now += (width / 256) as i64;
                while let Some(host) = timetable.pop_due(now) {
                    assert_eq!(expected.pop_first().map(|booking| booking.1), Some(host));
                }
                assert!(expected.first().is_none_or(|&(until, _)| until > now));
            }
            let next = expected.first().map(|&(until, _)| until);
            assert_eq!((expected.len(), next), (timetable.len(), timetable.next()));
        }
        let rest = std::iter::from_fn(|| timetable.pop_due(i64::MAX));
        assert!(rest.eq(expected.into_iter().map(|(_, host)| host)));
    }

    #[test]
    fn leaves_that_are_halved_and_joined_change_no_order() {
        compared(20_000, 1 << 16, 60_000);
        compared(3_000, 1 << 30, 30_000);
    }

    #[test]
    fn all_may_be_booked_at_one_instant() {
        compared(20_000, 1, 30_000);
    }

    #[test]
    fn leaves_stay_long_and_short_enough() {
        let mut timetable = Timetable::default();
        for host in 0..100_000_u32 {
            timetable.rest(host, (mixed(3, u64::from(host)) >> 40) as i64);
        }
        let longest = timetable.leaves.iter().map(Vec::len).max();
        assert!(longest <= Some(LEAF_MAX) && timetable.leaves.len() < 100_000 / (LEAF_MAX / 4));
        for host in (0..100_000).filter(|host| host % 100 != 0) {
            timetable.cancel(host);
        }
        assert!(timetable.leaves.len() < 2 * 1_000 / LEAF_MIN);
    }
}
