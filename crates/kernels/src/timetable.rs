//! When each resting host may be visited again, exact to the microsecond.
//!
//! A heap of (instant, row) that knows where each row stands, not a wheel: a wheel must either be late or sort a slot when
//! it is opened, and one slot can hold the whole world when all hosts are blocked until the same instant. The heap grows
//! in segments, so that no call waits for a copy of it.

use crate::rows::{Rows, NONE};

type Booking = (i64, u32);

/// Later than any booking: stands where nobody is.
const NOBODY: Booking = (i64::MAX, NONE);

/// The four children of a place, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Siblings([Booking; 4]);

/// Bookings of hosts; each host has one at most. 20 bytes per booked host.
///
/// Place p is entry p % 4 of siblings p / 4; the top is place 3, and the children of place p are siblings p - 2.
pub struct Timetable {
    heap: Rows<Siblings>,
    count: u32,
    place_of: Rows<u32>,
}

const TOP: u32 = 3;

impl Default for Timetable {
    fn default() -> Self {
        Self { heap: Rows::new(Siblings([NOBODY; 4])), count: 0, place_of: Rows::new(NONE) }
    }
}

impl Timetable {
    /// Books the host; an earlier booking of it lapses.
    pub fn rest(&mut self, host: u32, until: i64) {
        let booking = (until, host);
        match *self.place_of.get(host) {
            NONE => {
                let last = TOP + self.count;
                self.count += 1;
                self.rise(last, booking);
            }
            place if booking < self.at(place) => self.rise(place, booking),
            place => self.sink(place, booking),
        }
    }

    /// Ends the host's booking, if it has one.
    pub fn cancel(&mut self, host: u32) {
        let place = *self.place_of.get(host);
        if place != NONE {
            self.remove(place);
        }
    }

    /// The next host whose time has come, in the order of (instant, row); its booking ends.
    pub fn pop_due(&mut self, now: i64) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        let host = self.at(TOP).1;
        self.remove(TOP);
        Some(host)
    }

    /// The earliest booking.
    pub fn next(&self) -> Option<i64> {
        (self.count > 0).then(|| self.at(TOP).0)
    }

    /// The instant the host is booked at, -1 when it is not.
    pub fn until(&self, host: u32) -> i64 {
        match *self.place_of.get(host) {
            NONE => -1,
            place => self.at(place).0,
        }
    }

    /// How many hosts are booked.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether no host is booked.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn at(&self, place: u32) -> Booking {
        self.heap.get(place / 4).0[place as usize % 4]
    }

    fn put(&mut self, place: u32, booking: Booking) {
        self.heap.place(place / 4).0[place as usize % 4] = booking;
        *self.place_of.place(booking.1) = place;
    }

    fn remove(&mut self, place: u32) {
        let removed = self.at(place);
        *self.place_of.place(removed.1) = NONE;
        self.count -= 1;
        let last = TOP + self.count;
        let moved = self.at(last);
        self.heap.place(last / 4).0[last as usize % 4] = NOBODY;
        if place == last {
            return;
        }
        if moved < removed {
            self.rise(place, moved);
        } else {
            self.sink(place, moved);
        }
    }

    fn rise(&mut self, mut place: u32, booking: Booking) {
        while place > TOP {
            let parent = place / 4 + 2;
            let above = self.at(parent);
            if above <= booking {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, booking);
    }

    fn sink(&mut self, mut place: u32, booking: Booking) {
        loop {
            let Siblings(below) = *self.heap.get(place - 2);
            let mut least = 0;
            for child in 1..4 {
                if below[child] < below[least] {
                    least = child;
                }
            }
            if booking < below[least] {
                break;
            }
            self.put(place, below[least]);
            place = 4 * (place - 2) + least as u32;
        }
        self.put(place, booking);
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
