//! Who may be visited now: a ring of queues per crawl and class, drawn by chance weighted by class.
//!
//! Lists run through one table of those who stand, so every step costs the same however many do; whoever stands nowhere
//! takes 4 bytes.

use std::collections::{BTreeSet, HashMap};

use crate::rows::{Rows, NONE};

/// Classes 0 (last) to 15 (first).
pub const CLASSES: usize = 16;
/// The class of everybody in a crawl with an exact order: in the middle, so that other crawls and errands have their turns.
pub const ORDERED_CLASS: u8 = 8;
/// Every so many draws the one that has been ready longest is taken.
const OLDEST_DRAW_EVERY: u64 = 8;

/// 64 well-mixed bits of (seed, number): SplitMix64 (Steele, Lea, Flood 2014).
pub fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Slots per segment: 128 KiB.
const PART: usize = 4096;

/// A queue that stands: 32 bytes. The slots of its neighbours in the ring, and of those among all of the crawl by age.
#[derive(Clone, Copy)]
struct Standing {
    queue: u32,
    ring: u32, // view * CLASSES + class
    ring_before: u32,
    ring_after: u32, // of a free slot the next free one of its segment
    age_before: u32,
    age_after: u32,
    since: [u32; 2], // the number of its offer, low half first
}

const NOBODY: Standing = Standing {
    queue: NONE,
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

struct Segment {
    slots: Box<[Standing]>,
    free: u32,
    used: u32,
}

/// Slots of those who stand, in segments. The lowest segment with room is filled first, so that others empty when fewer
/// stand; those go back to the system.
#[derive(Default)]
struct Slots {
    segments: Vec<Option<Segment>>,
    roomy: BTreeSet<u32>, // segments with free slots
}

impl Slots {
    fn at(&self, slot: u32) -> &Standing {
        match &self.segments[slot as usize / PART] {
            Some(segment) => &segment.slots[slot as usize % PART],
            None => unreachable!("slot {slot} is given to nobody"),
        }
    }

    fn at_mut(&mut self, slot: u32) -> &mut Standing {
        match &mut self.segments[slot as usize / PART] {
            Some(segment) => &mut segment.slots[slot as usize % PART],
            None => unreachable!("slot {slot} is given to nobody"),
        }
    }

    fn give(&mut self, standing: Standing) -> u32 {
        let number = self.roomy.first().copied().unwrap_or_else(|| self.add_segment());
        let base = number * PART as u32;
        let Some(segment) = &mut self.segments[number as usize] else {
            unreachable!("segment {number} has room")
        };
        let within = segment.free as usize;
        let slot = base + segment.free;
        segment.free = segment.slots[within].ring_after;
        segment.slots[within] = standing;
        segment.used += 1;
        if segment.free == NONE {
            self.roomy.remove(&number);
        }
        slot
    }

    fn add_segment(&mut self) -> u32 {
        let vacant = self.segments.iter().position(Option::is_none);
        let number = vacant.unwrap_or(self.segments.len());
        let mut slots = vec![NOBODY; PART].into_boxed_slice();
        for (slot, next) in slots.iter_mut().take(PART - 1).zip(1..) {
            slot.ring_after = next;
        }
        let segment = Some(Segment { slots, free: 0, used: 0 });
        if vacant.is_some() {
            self.segments[number] = segment;
        } else {
            self.segments.push(segment);
        }
        self.roomy.insert(number as u32);
        number as u32
    }

    fn take_back(&mut self, slot: u32) {
        let number = slot / PART as u32;
        let Some(segment) = &mut self.segments[number as usize] else {
            unreachable!("slot {slot} is given to nobody")
        };
        let within = slot % PART as u32;
        if segment.free == NONE {
            self.roomy.insert(number);
        }
        segment.slots[within as usize].ring_after = segment.free;
        segment.free = within;
        segment.used -= 1;
        // One empty segment stays, or somebody who comes and goes would have it made anew each time.
        if segment.used == 0 && self.roomy.first() != Some(&number) {
            self.segments[number as usize] = None;
            self.roomy.remove(&number);
        }
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

/// What comes first in a crawl with an exact order: the smaller one.
pub type Key = (i64, u64);

/// The offered queues of a crawl with an exact order, by the keys of their best cards.
#[derive(Default)]
struct Line {
    first: BTreeSet<(Key, u32)>,
    keys: HashMap<u32, Key>,
}

impl Line {
    fn put(&mut self, queue: u32, key: Key) {
        self.remove(queue);
        self.keys.insert(queue, key);
        self.first.insert((key, queue));
    }

    fn remove(&mut self, queue: u32) {
        if let Some(key) = self.keys.remove(&queue) {
            self.first.remove(&(key, queue));
        }
    }

    fn best(&self) -> Option<u32> {
        self.first.first().map(|&(_, queue)| queue)
    }
}

/// One crawl's rings.
struct View {
    line: Option<Box<Line>>,
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
    slots: Slots,
    slot_of: Rows<u32>, // of queues, NONE for those who stand nowhere
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
            slots: Slots::default(),
            slot_of: Rows::new(NONE),
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
        let slot = *self.slot_of.get(queue);
        if slot != NONE {
            let ring = self.slots.at(slot).ring;
            if ring / CLASSES as u32 == view {
                if (ring as usize % CLASSES) < class {
                    self.leave_ring(slot);
                    self.enter_ring(slot, view, class);
                }
                return;
            }
            self.take_out(slot);
        }
        self.offers += 1;
        let since = [self.offers as u32, (self.offers >> 32) as u32];
        let slot = self.slots.give(Standing { queue, since, ..NOBODY });
        *self.slot_of.place(queue) = slot;
        self.enter_ages(slot, view);
        self.enter_ring(slot, view, class);
    }

    /// Offers a queue of a crawl with an exact order, at the place of its best card.
    pub fn offer_in_order(&mut self, queue: u32, crawl: u32, key: Key) {
        self.offer(queue, crawl, ORDERED_CLASS);
        let view = self.view(crawl);
        self.views[view as usize].line.get_or_insert_with(Box::default).put(queue, key);
    }

    /// The queue stands nowhere any more.
    pub fn withdraw(&mut self, queue: u32) {
        let slot = *self.slot_of.get(queue);
        if slot != NONE {
            self.take_out(slot);
        }
    }

    /// Touches what is known of these queues, so that the misses of a batch overlap.
    pub fn touch(&self, queues: &[u32]) {
        let seen = queues.iter().fold(0, |seen, &queue| seen ^ self.slot_of.get(queue));
        std::hint::black_box(seen);
    }

    /// The next queue of all crawls, taken out.
    pub fn draw(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.draws += 1;
        let slot = if self.draws % OLDEST_DRAW_EVERY == 0 {
            let &(_, view) = self.ages.first()?;
            self.views[view as usize].oldest
        } else {
            let class = class_drawn(self.filled, mixed(self.seed, self.draws));
            let turn = self.turns[class];
            let ring = *self.ring(turn);
            self.turns[class] = ring.turn_after;
            ring.first
        };
        let view = self.slots.at(slot).ring / CLASSES as u32;
        Some(self.take_out(self.first_in_order(view).unwrap_or(slot)))
    }

    /// The next queue of one crawl, taken out.
    pub fn draw_of(&mut self, crawl: u32) -> Option<u32> {
        let number = *self.view_of.get(crawl);
        if number == NONE {
            return None;
        }
        if self.views[number as usize].count == 0 {
            return None;
        }
        if let Some(slot) = self.first_in_order(number) {
            return Some(self.take_out(slot));
        }
        let view = &mut self.views[number as usize];
        view.draws += 1;
        let slot = if view.draws % OLDEST_DRAW_EVERY == 0 {
            view.oldest
        } else {
            view.rings[class_drawn(view.filled, mixed(view.seed, view.draws))].first
        };
        Some(self.take_out(slot))
    }

    /// The slot that is next in a crawl with an exact order.
    fn first_in_order(&self, view: u32) -> Option<u32> {
        let queue = self.views[view as usize].line.as_ref()?.best()?;
        Some(*self.slot_of.get(queue))
    }

    /// Whether the queue stands in a ring.
    pub fn stands(&self, queue: u32) -> bool {
        *self.slot_of.get(queue) != NONE
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
            line: None,
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

    fn take_out(&mut self, slot: u32) -> u32 {
        let Standing { queue, ring, .. } = *self.slots.at(slot);
        let number = ring / CLASSES as u32;
        self.leave_ring(slot);
        self.leave_ages(slot, number);
        self.count -= 1;
        let view = &mut self.views[number as usize];
        view.count -= 1;
        if let Some(line) = &mut view.line {
            line.remove(queue);
        }
        self.slots.take_back(slot);
        *self.slot_of.place(queue) = NONE;
        queue
    }

    fn enter_ring(&mut self, slot: u32, view: u32, class: usize) {
        let name = view * CLASSES as u32 + class as u32;
        let ring = self.ring(name);
        let last = ring.last;
        ring.last = slot;
        if last == NONE {
            ring.first = slot;
            self.enter_turns(view, class);
        } else {
            self.slots.at_mut(last).ring_after = slot;
        }
        let standing = self.slots.at_mut(slot);
        standing.ring = name;
        standing.ring_before = last;
        standing.ring_after = NONE;
    }

    fn leave_ring(&mut self, slot: u32) {
        let Standing { ring: name, ring_before: before, ring_after: after, .. } =
            *self.slots.at(slot);
        let ring = self.ring(name);
        if before == NONE {
            ring.first = after;
        }
        if after == NONE {
            ring.last = before;
        }
        if before != NONE {
            self.slots.at_mut(before).ring_after = after;
        }
        if after != NONE {
            self.slots.at_mut(after).ring_before = before;
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

    fn enter_ages(&mut self, slot: u32, number: u32) {
        let since = self.slots.at(slot).since();
        let view = &mut self.views[number as usize];
        let newest = view.newest;
        view.newest = slot;
        view.count += 1;
        self.count += 1;
        if newest == NONE {
            view.oldest = slot;
            self.ages.insert((since, number));
        } else {
            self.slots.at_mut(newest).age_after = slot;
        }
        let standing = self.slots.at_mut(slot);
        standing.age_before = newest;
        standing.age_after = NONE;
    }

    fn leave_ages(&mut self, slot: u32, number: u32) {
        let standing = *self.slots.at(slot);
        let (before, after) = (standing.age_before, standing.age_after);
        if before != NONE {
            self.slots.at_mut(before).age_after = after;
        }
        let next_since = match after {
            NONE => None,
            after => {
                let next = self.slots.at_mut(after);
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

    #[test]
    fn the_place_of_those_who_stand_no_more_is_given_back() {
        let mut ready = Ready::new(7);
        for round in 0..3 {
            for queue in 0..100_000 {
                ready.offer(queue, 0, 3);
            }
            let held = |ready: &Ready| ready.slots.segments.iter().flatten().count();
            assert_eq!(100_000_usize.div_ceil(PART), held(&ready));
            while ready.len() > 10 {
                ready.draw();
            }
            assert!(held(&ready) <= 3, "round {round}");
            while ready.draw().is_some() {}
            assert_eq!(1, held(&ready));
        }
    }
}
