//! Who may be visited now: a ring of queues per crawl and class, drawn by chance weighted by class.
//!
//! Lists run through one table of rows, so every step costs the same however many stand.

use std::collections::BTreeSet;

use crate::rows::{Rows, NONE};

/// Classes 0 (last) to 15 (first).
pub const CLASSES: usize = 16;
/// Every so many draws the one that has been ready longest is taken.
const OLDEST_DRAW_EVERY: u64 = 8;

/// 64 well-mixed bits of (seed, number): SplitMix64 (Steele, Lea, Flood 2014).
pub fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What is known of a queue: 28 bytes. Its neighbours in the ring, its neighbours among all of the crawl by age.
#[derive(Clone, Copy)]
struct Standing {
    ring: u32, // view * CLASSES + class, NONE when it stands nowhere
    ring_before: u32,
    ring_after: u32,
    age_before: u32,
    age_after: u32,
    since: [u32; 2], // the number of its offer, low half first
}

const NOWHERE: Standing = Standing {
    ring: NONE,
    ring_before: NONE,
    ring_after: NONE,
    age_before: NONE,
    age_after: NONE,
    since: [0, 0],
};

impl Standing {
    fn since(&self) -> u64 {
        u64::from(self.since[0]) | u64::from(self.since[1]) << 32
    }
}

#[derive(Clone, Copy)]
struct Ring {
    first: u32,
    last: u32,
    turn_before: u32, // the neighbours among the rings of this class that have somebody, in a circle
    turn_after: u32,
}

const EMPTY: Ring = Ring { first: NONE, last: NONE, turn_before: NONE, turn_after: NONE };

/// One crawl's rings.
struct View {
    rings: [Ring; CLASSES],
    filled: u32, // bit i: ring i has somebody
    oldest: u32,
    newest: u32,
    count: usize,
    draws: u64,
    seed: u64,
}

/// Rings of ready queues.
pub struct Ready {
    rows: Rows<Standing>,
    views: Vec<View>,
    view_of: Rows<u32>,
    turns: [u32; CLASSES], // per class the ring whose turn it is
    filled: u32,
    ages: BTreeSet<(u64, u32)>, // (since of the oldest, view) of each view that has somebody
    count: usize,
    draws: u64,
    offers: u64,
    seed: u64,
}

impl Ready {
    /// Empty rings; the seed decides the draws.
    pub fn new(seed: u64) -> Self {
        Self {
            rows: Rows::new(NOWHERE),
            views: Vec::new(),
            view_of: Rows::new(NONE),
            turns: [NONE; CLASSES],
            filled: 0,
            ages: BTreeSet::new(),
            count: 0,
            draws: 0,
            offers: 0,
            seed,
        }
    }

    /// The queue stands at the end of its ring; one that stands in a ring of the crawl only moves to a better class.
    pub fn offer(&mut self, queue: u32, crawl: u32, class: u8) {
        let class = usize::from(class);
        let view = self.view(crawl);
        let ring = self.rows.get(queue).ring;
        if ring != NONE && ring / CLASSES as u32 == view {
            if (ring as usize % CLASSES) < class {
                self.leave_ring(queue);
                self.enter_ring(queue, view, class);
            }
            return;
        }
        if ring != NONE {
            self.take_out(queue);
        }
        self.offers += 1;
        self.enter_ages(queue, view);
        self.enter_ring(queue, view, class);
    }

    /// The queue stands nowhere any more.
    pub fn withdraw(&mut self, queue: u32) {
        if self.rows.get(queue).ring != NONE {
            self.take_out(queue);
        }
    }

    /// Touches what is known of these queues, so that the misses of a batch overlap.
    pub fn touch(&self, queues: &[u32]) {
        let seen = queues.iter().fold(0, |seen, &queue| seen ^ self.rows.get(queue).ring);
        std::hint::black_box(seen);
    }

    /// The next queue of all crawls, taken out.
    pub fn draw(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.draws += 1;
        let queue = if self.draws % OLDEST_DRAW_EVERY == 0 {
            let &(_, view) = self.ages.first()?;
            self.views[view as usize].oldest
        } else {
            let class = class_drawn(self.filled, mixed(self.seed, self.draws));
            let turn = self.turns[class];
            let ring = *self.ring(turn);
            self.turns[class] = ring.turn_after;
            ring.first
        };
        self.take_out(queue);
        Some(queue)
    }

    /// The next queue of one crawl, taken out.
    pub fn draw_of(&mut self, crawl: u32) -> Option<u32> {
        let number = *self.view_of.get(crawl);
        if number == NONE {
            return None;
        }
        let view = &mut self.views[number as usize];
        if view.count == 0 {
            return None;
        }
        view.draws += 1;
        let queue = if view.draws % OLDEST_DRAW_EVERY == 0 {
            view.oldest
        } else {
            view.rings[class_drawn(view.filled, mixed(view.seed, view.draws))].first
        };
        self.take_out(queue);
        Some(queue)
    }

    /// Whether the queue stands in a ring.
    pub fn stands(&self, queue: u32) -> bool {
        self.rows.get(queue).ring != NONE
    }

    /// How many stand.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nobody stands.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn view(&mut self, crawl: u32) -> u32 {
        let known = *self.view_of.get(crawl);
        if known != NONE {
            return known;
        }
        let view = View {
            rings: [EMPTY; CLASSES],
            filled: 0,
            oldest: NONE,
            newest: NONE,
            count: 0,
            draws: 0,
            seed: mixed(self.seed, u64::from(crawl)),
        };
        let number = self.views.len() as u32;
        self.views.push(view);
        *self.view_of.place(crawl) = number;
        number
    }

    fn ring(&mut self, ring: u32) -> &mut Ring {
        &mut self.views[ring as usize / CLASSES].rings[ring as usize % CLASSES]
    }

    fn take_out(&mut self, queue: u32) {
        let number = self.rows.get(queue).ring / CLASSES as u32;
        self.leave_ring(queue);
        self.leave_ages(queue, number);
        self.count -= 1;
        self.views[number as usize].count -= 1;
        *self.rows.place(queue) = NOWHERE;
    }

    fn enter_ring(&mut self, queue: u32, view: u32, class: usize) {
        let name = view * CLASSES as u32 + class as u32;
        let ring = self.ring(name);
        let last = ring.last;
        ring.last = queue;
        if last == NONE {
            ring.first = queue;
            self.enter_turns(view, class);
        } else {
            self.rows.place(last).ring_after = queue;
        }
        let standing = self.rows.place(queue);
        standing.ring = name;
        standing.ring_before = last;
        standing.ring_after = NONE;
    }

    fn leave_ring(&mut self, queue: u32) {
        let Standing { ring: name, ring_before: before, ring_after: after, .. } =
            *self.rows.get(queue);
        let ring = self.ring(name);
        if before == NONE {
            ring.first = after;
        }
        if after == NONE {
            ring.last = before;
        }
        if before != NONE {
            self.rows.place(before).ring_after = after;
        }
        if after != NONE {
            self.rows.place(after).ring_before = before;
        }
        if before == NONE && after == NONE {
            self.leave_turns(name / CLASSES as u32, name as usize % CLASSES);
        }
    }

    /// The ring has somebody again: its turn comes after those of all other crawls.
    fn enter_turns(&mut self, view: u32, class: usize) {
        let name = view * CLASSES as u32 + class as u32;
        let turn = self.turns[class];
        let (before, after) = if turn == NONE {
            self.turns[class] = name;
            (name, name)
        } else {
            let last = self.ring(turn).turn_before;
            self.ring(turn).turn_before = name;
            self.ring(last).turn_after = name;
            (last, turn)
        };
        let ring = self.ring(name);
        ring.turn_before = before;
        ring.turn_after = after;
        self.filled |= 1 << class;
        self.views[view as usize].filled |= 1 << class;
    }

    fn leave_turns(&mut self, view: u32, class: usize) {
        let name = view * CLASSES as u32 + class as u32;
        let Ring { turn_before: before, turn_after: after, .. } = *self.ring(name);
        if after == name {
            self.turns[class] = NONE;
            self.filled &= !(1 << class);
        } else {
            self.ring(before).turn_after = after;
            self.ring(after).turn_before = before;
            if self.turns[class] == name {
                self.turns[class] = after;
            }
        }
        self.views[view as usize].filled &= !(1 << class);
    }

    fn enter_ages(&mut self, queue: u32, number: u32) {
        let since = self.offers;
        let view = &mut self.views[number as usize];
        let newest = view.newest;
        view.newest = queue;
        view.count += 1;
        self.count += 1;
        if newest == NONE {
            view.oldest = queue;
            self.ages.insert((since, number));
        } else {
            self.rows.place(newest).age_after = queue;
        }
        let standing = self.rows.place(queue);
        standing.age_before = newest;
        standing.age_after = NONE;
        standing.since = [since as u32, (since >> 32) as u32];
    }

    fn leave_ages(&mut self, queue: u32, number: u32) {
        let standing = *self.rows.get(queue);
        let (before, after) = (standing.age_before, standing.age_after);
        if before != NONE {
            self.rows.place(before).age_after = after;
        }
        let next_since = match after {
            NONE => None,
            after => {
                let next = self.rows.place(after);
                next.age_before = before;
                Some(next.since())
            }
        };
        let view = &mut self.views[number as usize];
        if after == NONE {
            view.newest = before;
        }
        if before == NONE {
            view.oldest = after;
            self.ages.remove(&(standing.since(), number));
            if let Some(since) = next_since {
                self.ages.insert((since, number));
            }
        }
    }
}

/// The class whose share of the weights the bits fall into. The weights 2^i of the filled rings add up to the set of their
/// bits, read as a number.
fn class_drawn(filled: u32, bits: u64) -> usize {
    let mut ticket = 1 + bits % u64::from(filled);
    let mut rest = filled;
    loop {
        let class = 31 - rest.leading_zeros() as usize;
        let weight = 1_u64 << class;
        if ticket <= weight {
            return class;
        }
        ticket -= weight;
        rest &= !(1 << class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_stands_is_drawn_once() {
        let mut ready = Ready::new(7);
        for queue in 0..1000 {
            ready.offer(queue, queue % 3, (queue % 16) as u8);
        }
        let mut drawn: Vec<u32> = std::iter::from_fn(|| ready.draw()).collect();
        drawn.sort_unstable();
        assert_eq!((0..1000).collect::<Vec<u32>>(), drawn);
        assert!(ready.is_empty());
    }
}
