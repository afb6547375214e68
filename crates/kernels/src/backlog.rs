//! The cards of many queues, the best of each first: what `take` gives next for a queue costs the same however many queues
//! there are and however much each holds.
//!
//! A card is a head of 72 bytes (`src/outrider/kernels/card_layout.py` draws it) and a body. Cards lie in an arena of slots of 16
//! bytes, segment by segment, and are named by their place. A queue is 8 bytes: empty, or the place of its only card, or
//! the number of a binary heap, or where its few cards lie outside of this kernel. The order is (-klass, due, order), then the card's own bytes, so that it is total and equal
//! histories give equal answers.

use std::cmp::Ordering;
use std::fmt;

use crate::rows::NONE;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 72;
/// What `best` says of a queue that holds nothing.
pub const NO_CLASS: u8 = 255;
/// What a card is reckoned to cost beside its bytes: its place, its key, and room that a growing list keeps free.
pub const CARD_OVERHEAD_BYTES: u64 = 24;

const FINGERPRINT: usize = 0;
const ORDER: usize = 16;
const DUE: usize = 24;
pub(crate) const EXTRA_BYTES: usize = 44;
pub(crate) const URL_BYTES: usize = 56;
pub(crate) const REFERRER_BYTES: usize = 58;
const KLASS: usize = 62;

const UNIT: usize = 16;
const SEGMENT_BYTES: usize = 1 << 20;
const SEGMENT_UNITS: usize = SEGMENT_BYTES / UNIT;
/// Cards of more units than this have an allocation of their own.
const SLOT_UNITS_MAX: usize = 1024;
/// Places from here on name cards with an allocation of their own.
const LARGE: u32 = 0xF000_0000;
const SEGMENTS_MAX: usize = (LARGE as usize) / SEGMENT_UNITS;

/// So many cards of one call are put in queue by queue; sorting fewer costs more than it saves.
const MANY_CARDS: usize = 1024;

/// Queues that are looked at together, so that their cache misses overlap.
const ABREAST: usize = 32;
/// Of each of them so many cards.
const TOUCHED_CARDS: usize = 16;
/// Rows of queues, and entries of heaps, per segment.
const PART: usize = 4096;
const LISTED: u32 = 1 << 31;
const ASIDE: u32 = 1 << 30;

/// So many cards a queue may have that is set aside.
const ASIDE_CARDS_MAX: usize = 8;
/// And so high a class.
const ASIDE_CLASS_MAX: u8 = 15;
/// Places outside are numbers of so many bits, and not 0.
const ASIDE_PLACE_BITS: u32 = 55;

/// Why a call was refused; nothing was changed.
#[derive(Debug)]
pub enum Refusal {
    /// A row that no queue has.
    Row(String),
    /// Columns that do not belong together, or a number out of its range.
    Value(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(message) | Self::Value(message) => out.write_str(message),
        }
    }
}

/// Cards in columns: heads, bodies, and where each body begins and the last ends (i64, little endian).
#[derive(Debug)]
pub struct Cards {
    /// 72 bytes per card.
    pub heads: Vec<u8>,
    /// The bodies, one after the other.
    pub arena: Vec<u8>,
    /// 8 bytes per card and 8 more.
    pub offsets: Vec<u8>,
}

impl Cards {
    fn with_capacity(cards: usize, arena_bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(8 * (cards + 1));
        offsets.extend_from_slice(&0_i64.to_le_bytes());
        Self {
            heads: Vec::with_capacity(HEAD_BYTES * cards),
            arena: Vec::with_capacity(arena_bytes),
            offsets,
        }
    }

    fn push(&mut self, card: &[u8]) {
        self.heads.extend_from_slice(&card[..HEAD_BYTES]);
        self.arena.extend_from_slice(&card[HEAD_BYTES..]);
        self.offsets.extend_from_slice(&(self.arena.len() as i64).to_le_bytes());
    }
}

fn u16_at(head: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([head[at], head[at + 1]]))
}

fn u64_at(head: &[u8], at: usize) -> u64 {
    let mut octets = [0; 8];
    octets.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(octets)
}

/// How long the body is that belongs to a head.
fn body_bytes(head: &[u8]) -> usize {
    let extra = u32::from_le_bytes([
        head[EXTRA_BYTES],
        head[EXTRA_BYTES + 1],
        head[EXTRA_BYTES + 2],
        head[EXTRA_BYTES + 3],
    ]);
    u16_at(head, URL_BYTES) + u16_at(head, REFERRER_BYTES) + extra as usize
}

/// What a card is reckoned to take in memory.
fn cost(card_bytes: usize) -> u64 {
    (card_bytes.div_ceil(UNIT) * UNIT) as u64 + CARD_OVERHEAD_BYTES
}

// --------------------------------------------------------------------------------------------------------- the arena

/// Slots of whole units in segments. A freed slot waits in a list of its size for the next card of that size: sizes of
/// cards hardly change over a crawl, and nothing has to be moved.
#[derive(Debug)]
struct Arena {
    segments: Vec<Box<[u8]>>,
    /// The first unit of the last segment that was never given out.
    fresh: usize,
    free: Vec<u32>,
    large: Vec<Vec<u8>>,
    large_free: Vec<u32>,
}

impl Arena {
    fn new() -> Self {
        Self {
            segments: Vec::new(),
            fresh: SEGMENT_UNITS,
            free: vec![NONE; SLOT_UNITS_MAX + 1],
            large: Vec::new(),
            large_free: Vec::new(),
        }
    }

    fn has_room_for(&self, bytes: u64) -> bool {
        let segments = self.segments.len() as u64 + 1 + bytes / (SEGMENT_BYTES / 2) as u64;
        segments <= SEGMENTS_MAX as u64
    }

    fn slice(&self, place: u32) -> &[u8] {
        if place >= LARGE {
            return &self.large[(place - LARGE) as usize];
        }
        let place = place as usize;
        &self.segments[place / SEGMENT_UNITS][place % SEGMENT_UNITS * UNIT..]
    }

    fn card(&self, place: u32) -> &[u8] {
        let slice = self.slice(place);
        &slice[..HEAD_BYTES + body_bytes(slice)]
    }

    fn put(&mut self, head: &[u8], body: &[u8]) -> u32 {
        let units = (head.len() + body.len()).div_ceil(UNIT);
        if units > SLOT_UNITS_MAX {
            let card = [head, body].concat();
            if let Some(number) = self.large_free.pop() {
                self.large[number as usize] = card;
                return LARGE + number;
            }
            self.large.push(card);
            return LARGE + (self.large.len() - 1) as u32;
        }
        let mut place = self.free[units];
        if place == NONE {
            if self.fresh + units > SEGMENT_UNITS {
                self.segments.push(vec![0; SEGMENT_BYTES].into_boxed_slice());
                self.fresh = 0;
            }
            place = ((self.segments.len() - 1) * SEGMENT_UNITS + self.fresh) as u32;
            self.fresh += units;
        } else {
            let slot = self.slice(place);
            self.free[units] = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        }
        let place_of = place as usize;
        let at = place_of % SEGMENT_UNITS * UNIT;
        let slot = &mut self.segments[place_of / SEGMENT_UNITS][at..at + head.len() + body.len()];
        slot[..head.len()].copy_from_slice(head);
        slot[head.len()..].copy_from_slice(body);
        place
    }

    /// Gives the place back; `bytes` is how long its card was.
    fn release(&mut self, place: u32, bytes: usize) {
        if place >= LARGE {
            self.large[(place - LARGE) as usize] = Vec::new();
            self.large_free.push(place - LARGE);
            return;
        }
        let units = bytes.div_ceil(UNIT);
        let next = self.free[units].to_le_bytes();
        let place_of = place as usize;
        let at = place_of % SEGMENT_UNITS * UNIT;
        self.segments[place_of / SEGMENT_UNITS][at..at + 4].copy_from_slice(&next);
        self.free[units] = place;
    }
}

// ----------------------------------------------------------------------------------------------------------- a queue

/// A card's key and place. `rank` is 255 - klass: what is smaller comes first.
#[derive(Clone, Copy, Debug)]
struct Entry {
    due: i64,
    order: u64,
    place: u32,
    rank: u8,
}

impl Entry {
    fn of(head: &[u8], place: u32) -> Self {
        let (due, order) = (u64_at(head, DUE) as i64, u64_at(head, ORDER));
        Self { due, order, place, rank: !head[KLASS] }
    }

    fn compare(&self, other: &Self, arena: &Arena) -> Ordering {
        (self.rank, self.due, self.order)
            .cmp(&(other.rank, other.due, other.order))
            .then_with(|| arena.card(self.place).cmp(arena.card(other.place)))
    }

    fn before(&self, other: &Self, arena: &Arena) -> bool {
        self.compare(other, arena) == Ordering::Less
    }
}

/// A binary heap in segments, so that growing never copies much.
#[derive(Debug, Default)]
struct Heap {
    first: Vec<Entry>,
    #[allow(clippy::box_collection)] // most heaps are short: one word for what they do not have
    rest: Option<Box<Vec<Vec<Entry>>>>,
}

impl Heap {
    /// From entries in order, which is a heap already.
    fn of_sorted(mut entries: Vec<Entry>) -> Self {
        if entries.len() <= PART {
            entries.shrink_to_fit();
            return Self { first: entries, rest: None };
        }
        let mut heap = Self::default();
        for entry in entries {
            heap.append(entry);
        }
        heap
    }

    fn len(&self) -> usize {
        let rest =
            self.rest.as_ref().and_then(|rest| Some((rest.len() - 1) * PART + rest.last()?.len()));
        self.first.len() + rest.unwrap_or(0)
    }

    fn get(&self, at: usize) -> &Entry {
        match (&self.rest, at / PART) {
            (Some(rest), part) if part > 0 => &rest[part - 1][at % PART],
            _ => &self.first[at],
        }
    }

    fn set(&mut self, at: usize, entry: Entry) {
        match (&mut self.rest, at / PART) {
            (Some(rest), part) if part > 0 => rest[part - 1][at % PART] = entry,
            _ => self.first[at] = entry,
        }
    }

    /// Room in the first part for so many more entries, as far as it may have them.
    fn make_room(&mut self, more: usize) {
        let len = self.first.len();
        let more = more.min(PART - len);
        if self.first.capacity() - len < more {
            // A quarter more: a list of a few hundred thousand queues keeps little room free.
            self.first.reserve_exact(more.max(len / 4).max(2));
        }
    }

    fn append(&mut self, entry: Entry) {
        let len = self.first.len();
        if len < PART {
            self.make_room(1);
            self.first.push(entry);
            return;
        }
        let rest = self.rest.get_or_insert_with(Box::default);
        if rest.last().is_none_or(|part| part.len() == PART) {
            rest.push(Vec::with_capacity(PART));
        }
        if let Some(part) = rest.last_mut() {
            part.push(entry);
        }
    }

    fn cut(&mut self) -> Option<Entry> {
        let Some(rest) = &mut self.rest else { return self.first.pop() };
        let entry = rest.last_mut().and_then(Vec::pop);
        if rest.last().is_some_and(Vec::is_empty) {
            rest.pop();
        }
        if rest.is_empty() {
            self.rest = None;
        }
        entry
    }

    fn rise(&mut self, mut at: usize, arena: &Arena) {
        let entry = *self.get(at);
        while at > 0 {
            let parent = *self.get((at - 1) / 2);
            if !entry.before(&parent, arena) {
                break;
            }
            self.set(at, parent);
            at = (at - 1) / 2;
        }
        self.set(at, entry);
    }

    fn sink(&mut self, mut at: usize, arena: &Arena) {
        let (entry, len) = (*self.get(at), self.len());
        loop {
            let mut child = 2 * at + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && self.get(child + 1).before(self.get(child), arena) {
                child += 1;
            }
            let least = *self.get(child);
            if !least.before(&entry, arena) {
                break;
            }
            self.set(at, least);
            at = child;
        }
        self.set(at, entry);
    }

    fn push(&mut self, entry: Entry, arena: &Arena) {
        self.append(entry);
        self.rise(self.len() - 1, arena);
    }

    fn remove(&mut self, at: usize, arena: &Arena) -> Option<Entry> {
        let last = self.cut()?;
        if at == self.len() {
            return Some(last);
        }
        let removed = *self.get(at);
        self.set(at, last);
        if at > 0 && last.before(self.get((at - 1) / 2), arena) {
            self.rise(at, arena);
        } else {
            self.sink(at, arena);
        }
        Some(removed)
    }

    fn into_sorted(self, arena: &Arena) -> Vec<Entry> {
        let mut entries = self.first;
        for part in self.rest.into_iter().flat_map(|rest| rest.into_iter()) {
            entries.extend_from_slice(&part);
        }
        entries.sort_unstable_by(|one, other| one.compare(other, arena));
        entries
    }

    /// The best `most` in order, looking only at them and their children.
    fn best(&self, most: usize, arena: &Arena) -> Vec<Entry> {
        let len = self.len();
        let mut chosen = Vec::with_capacity(most.min(len));
        if most >= len / 8 {
            chosen.extend((0..len).map(|at| *self.get(at)));
            chosen.sort_unstable_by(|one: &Entry, other| one.compare(other, arena));
            chosen.truncate(most);
            return chosen;
        }
        // The edge of what was chosen, worst first.
        let mut edge = vec![0];
        while chosen.len() < most {
            let Some(at) = edge.pop() else { break };
            chosen.push(*self.get(at));
            for child in [2 * at + 1, 2 * at + 2] {
                if child < len {
                    let entry = self.get(child);
                    let rank = edge.partition_point(|&other| entry.before(self.get(other), arena));
                    edge.insert(rank, child);
                }
            }
        }
        chosen
    }
}

/// 8 bytes: how many cards (and whether the queue is listed as changed), and the only card's place or the heap's number.
/// Of a queue that is aside: 3 bits of cards less one, 4 of the best class, the place outside.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    count: u32,
    at: u32,
}

impl Queue {
    /// In memory.
    fn len(self) -> usize {
        if self.is_aside() {
            return 0;
        }
        (self.count & !LISTED) as usize
    }

    fn is_aside(self) -> bool {
        self.count & ASIDE != 0
    }

    fn aside(listed: u32, cards: u32, class: u8, place: u64) -> Self {
        let told = (cards - 1) | u32::from(class) << 3 | ((place >> 32) as u32) << 7;
        Self { count: listed | ASIDE | told, at: place as u32 }
    }

    fn cards_aside(self) -> u32 {
        if self.is_aside() {
            (self.count & 7) + 1
        } else {
            0
        }
    }

    fn class_aside(self) -> u8 {
        (self.count >> 3 & 15) as u8
    }

    fn place_aside(self) -> u64 {
        if !self.is_aside() {
            return 0;
        }
        u64::from(self.count << 2 >> 9) << 32 | u64::from(self.at)
    }
}

// ----------------------------------------------------------------------------------------------------------- the kernel

/// The cards of many queues; see the head of this file.
#[derive(Debug)]
pub struct Backlog {
    queues: Vec<Option<Box<[Queue]>>>,
    heaps: Vec<Vec<Heap>>,
    heaps_free: Vec<u32>,
    arena: Arena,
    listed: Vec<u32>,
    cards: u64,
    bytes: u64,
    filled: u64,
    aside: u64,
    cards_aside: u64,
    /// One more than the highest row that was ever given a card.
    rows: u64,
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new()
    }
}

fn check_row(queue: u32, row: usize) -> Result<(), Refusal> {
    if queue == NONE {
        return Err(Refusal::Row(format!("row {row}: {queue} is no queue")));
    }
    Ok(())
}

impl Backlog {
    /// No cards.
    pub fn new() -> Self {
        Self {
            queues: Vec::new(),
            heaps: Vec::new(),
            heaps_free: Vec::new(),
            arena: Arena::new(),
            listed: Vec::new(),
            cards: 0,
            bytes: 0,
            filled: 0,
            aside: 0,
            cards_aside: 0,
            rows: 0,
        }
    }

    /// How many cards there are in memory.
    pub fn len(&self) -> u64 {
        self.cards
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.cards == 0
    }

    /// What the cards are reckoned to take in memory: whole slots, and `CARD_OVERHEAD_BYTES` each.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many queues hold a card in memory.
    pub fn queues(&self) -> u64 {
        self.filled
    }

    /// How many queues are aside, and how many cards they have there.
    pub fn aside_counts(&self) -> (u64, u64) {
        (self.aside, self.cards_aside)
    }

    fn queue(&self, queue: u32) -> Queue {
        let part = self.queues.get(queue as usize / PART).and_then(Option::as_ref);
        part.map_or_else(Queue::default, |part| part[queue as usize % PART])
    }

    fn set_queue(&mut self, queue: u32, state: Queue) {
        let part = queue as usize / PART;
        if part >= self.queues.len() {
            self.queues.resize_with(part + 1, || None);
        }
        let rows = self.queues[part]
            .get_or_insert_with(|| vec![Queue::default(); PART].into_boxed_slice());
        rows[queue as usize % PART] = state;
    }

    fn heap(&self, number: u32) -> &Heap {
        &self.heaps[number as usize / PART][number as usize % PART]
    }

    fn add_heap(&mut self, heap: Heap) -> u32 {
        if let Some(number) = self.heaps_free.pop() {
            self.heaps[number as usize / PART][number as usize % PART] = heap;
            return number;
        }
        if self.heaps.last().is_none_or(|part| part.len() == PART) {
            self.heaps.push(Vec::with_capacity(PART));
        }
        let part = self.heaps.len() - 1;
        self.heaps[part].push(heap);
        (part * PART + self.heaps[part].len() - 1) as u32
    }

    fn drop_heap(&mut self, number: u32) -> Heap {
        self.heaps_free.push(number);
        std::mem::take(&mut self.heaps[number as usize / PART][number as usize % PART])
    }

    /// Writes how long a queue is after cards were taken; `heap` is its heap's number, whose entries are up to date.
    fn settle(&mut self, queue: u32, heap: u32) {
        let listed = self.queue(queue).count & LISTED;
        let len = self.heap(heap).len();
        let at = match len {
            0 | 1 => self.drop_heap(heap).first.first().map_or(0, |entry| entry.place),
            _ => heap,
        };
        if len == 0 {
            self.filled -= 1;
        }
        self.set_queue(queue, Queue { count: len as u32 | listed, at });
    }

    /// Every entry of a queue in order; the queue is empty afterwards.
    fn take_sorted(&mut self, queue: u32) -> Vec<Entry> {
        let state = self.queue(queue);
        let entries = match state.len() {
            0 => return Vec::new(),
            1 => vec![Entry::of(self.arena.slice(state.at), state.at)],
            _ => self.drop_heap(state.at).into_sorted(&self.arena),
        };
        self.filled -= 1;
        self.set_queue(queue, Queue { count: state.count & LISTED, at: 0 });
        entries
    }

    /// Gives entries in order to a queue that is empty.
    fn restore_sorted(&mut self, queue: u32, entries: Vec<Entry>) {
        let listed = self.queue(queue).count & LISTED;
        let count = entries.len() as u32 | listed;
        let at = match entries.len() {
            0 => return,
            1 => entries[0].place,
            _ => self.add_heap(Heap::of_sorted(entries)),
        };
        self.filled += 1;
        self.set_queue(queue, Queue { count, at });
    }

    fn pop(&mut self, queue: u32) -> Option<u32> {
        let state = self.queue(queue);
        match state.len() {
            0 => None,
            1 => {
                self.filled -= 1;
                self.set_queue(queue, Queue { count: state.count & LISTED, at: 0 });
                Some(state.at)
            }
            _ => {
                let heap = &mut self.heaps[state.at as usize / PART][state.at as usize % PART];
                let entry = heap.remove(0, &self.arena);
                self.settle(queue, state.at);
                entry.map(|entry| entry.place)
            }
        }
    }

    fn give_out(&mut self, places: &[u32]) -> Cards {
        let arena_bytes =
            places.iter().map(|&place| body_bytes(self.arena.slice(place))).sum::<usize>();
        let mut cards = Cards::with_capacity(places.len(), arena_bytes);
        for &place in places {
            let card = self.arena.card(place);
            let bytes = card.len();
            cards.push(card);
            self.arena.release(place, bytes);
            self.bytes -= cost(bytes);
        }
        self.cards -= places.len() as u64;
        cards
    }

    /// Adds the cards: the queue of each, its head, and its body between two offsets of the arena.
    pub fn put(
        &mut self,
        queues: &[u32],
        heads: &[u8],
        arena: &[u8],
        offsets: &[i64],
    ) -> Result<(), Refusal> {
        let count = queues.len();
        if heads.len() != HEAD_BYTES * count || offsets.len() != count + 1 {
            let (heads, offsets) = (heads.len(), offsets.len());
            return Err(Refusal::Value(format!(
                "{count} queues need {} bytes of heads and {} offsets, not {heads} and {offsets}",
                HEAD_BYTES * count,
                count + 1
            )));
        }
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
            if self.aside > 0 && self.queue(queue).is_aside() {
                return Err(Refusal::Value(format!("row {row}: the cards of {queue} are aside")));
            }
            let (start, end) = (offsets[row], offsets[row + 1]);
            if start < 0 || end < start || end as u64 > arena.len() as u64 {
                let size = arena.len();
                return Err(Refusal::Value(format!(
                    "row {row}: a body from {start} to {end} lies outside {size} bytes"
                )));
            }
            let said = body_bytes(&heads[HEAD_BYTES * row..]);
            if said as i64 != end - start {
                let size = end - start;
                return Err(Refusal::Value(format!(
                    "row {row}: the head tells of {said} bytes of body, there are {size}"
                )));
            }
        }
        if !self.arena.has_room_for((heads.len() + arena.len()) as u64) {
            let cards = self.cards;
            return Err(Refusal::Value(format!("there is no room for more than {cards} cards")));
        }
        let put = |backlog: &mut Self, row: usize, coming: usize| {
            let head = &heads[HEAD_BYTES * row..HEAD_BYTES * (row + 1)];
            let body = &arena[offsets[row] as usize..offsets[row + 1] as usize];
            let place = backlog.arena.put(head, body);
            backlog.bytes += cost(head.len() + body.len());
            backlog.insert(queues[row], Entry::of(head, place), coming);
            backlog.rows = backlog.rows.max(u64::from(queues[row]) + 1);
        };
        if count < MANY_CARDS {
            for (some, first) in queues.chunks(ABREAST).zip((0..).step_by(ABREAST)) {
                self.touch_ends(some);
                (first..first + some.len()).for_each(|row| put(self, row, 1));
            }
        } else {
            // Queue by queue: a heap is fetched and made longer once, not for each of its cards.
            let mut order: Vec<u64> = queues
                .iter()
                .zip(0_u64..)
                .map(|(&queue, row)| u64::from(queue) << 32 | row)
                .collect();
            order.sort_unstable();
            for group in order.chunk_by(|one, other| one >> 32 == other >> 32) {
                for (&key, done) in group.iter().zip(0..) {
                    put(self, key as u32 as usize, group.len() - done);
                }
            }
        }
        self.cards += count as u64;
        Ok(())
    }

    /// `coming`: how many cards of this queue there are to insert, this one included.
    fn insert(&mut self, queue: u32, entry: Entry, coming: usize) {
        let state = self.queue(queue);
        let len = state.len();
        let at = match len {
            0 => {
                self.filled += 1;
                entry.place
            }
            1 => {
                let other = Entry::of(self.arena.slice(state.at), state.at);
                let mut heap = Heap::default();
                heap.make_room(coming + 1);
                heap.push(other, &self.arena);
                heap.push(entry, &self.arena);
                self.add_heap(heap)
            }
            _ => {
                let heap = &mut self.heaps[state.at as usize / PART][state.at as usize % PART];
                heap.make_room(coming);
                heap.push(entry, &self.arena);
                state.at
            }
        };
        let mut count = (state.count & LISTED) | (len as u32 + 1);
        if len > 0 && count & LISTED == 0 {
            count |= LISTED;
            self.listed.push(queue);
        }
        self.set_queue(queue, Queue { count, at });
    }

    /// Touches what the rows lead to, all rows before the next step: the misses of a batch overlap.
    fn touch(&self, queues: &[u32]) {
        let states: Vec<Queue> = queues.iter().map(|&queue| self.queue(queue)).collect();
        let mut seen = 0_u8;
        for state in states {
            seen ^= match state.len() {
                0 => 0,
                1 => self.arena.slice(state.at)[URL_BYTES],
                _ => self.heap(state.at).first[0].rank,
            };
        }
        std::hint::black_box(seen);
    }

    /// Of up to `ABREAST` rows the heaps, and this byte of the only card of those that have one.
    fn touch_places(
        &self,
        queues: impl Iterator<Item = u32>,
        byte: usize,
    ) -> ([Option<&Heap>; ABREAST], u8) {
        let mut heaps = [None; ABREAST];
        let mut seen = 0;
        for (heap, queue) in heaps.iter_mut().zip(queues) {
            let state = self.queue(queue);
            match state.len() {
                0 => {}
                1 => seen ^= self.arena.slice(state.at)[byte],
                _ => *heap = Some(self.heap(state.at)),
            }
        }
        (heaps, seen)
    }

    /// The same for a few rows that are about to get a card, which stands at the end of a heap at first.
    fn touch_ends(&self, queues: &[u32]) {
        let (heaps, mut seen) = self.touch_places(queues.iter().copied(), KLASS);
        for heap in heaps.iter().flatten() {
            seen ^= heap.first.last().map_or(0, |entry| entry.rank);
        }
        std::hint::black_box(seen);
    }

    /// The same for a few queues of which every card is about to be looked at.
    fn touch_cards(&self, queues: impl Iterator<Item = u32>) {
        let (heaps, mut seen) = self.touch_places(queues, FINGERPRINT);
        for heap in heaps.iter().flatten() {
            seen ^= heap.first.first().map_or(0, |entry| entry.rank);
        }
        for heap in heaps.iter().flatten() {
            for entry in heap.first.iter().take(TOUCHED_CARDS) {
                seen ^= self.arena.slice(entry.place)[FINGERPRINT];
            }
        }
        std::hint::black_box(seen);
    }

    /// Takes the best card of the queue of each row: which rows had one, and the cards of those in row order.
    pub fn take(&mut self, queues: &[u32]) -> Result<(Vec<u8>, Cards), Refusal> {
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
        }
        self.touch(queues);
        let mut found = Vec::with_capacity(queues.len());
        let mut places = Vec::with_capacity(queues.len());
        for &queue in queues {
            let place = self.pop(queue);
            found.push(u8::from(place.is_some()));
            places.extend(place);
        }
        Ok((found, self.give_out(&places)))
    }

    /// The class, due and order of each queue's best card; `NO_CLASS`, 0 and 0 where there is none. Of what is aside only
    /// the class is known.
    pub fn best_keys(&self, queues: &[u32]) -> Result<Vec<(u8, i64, u64)>, Refusal> {
        let mut keys = Vec::with_capacity(queues.len());
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
            let state = self.queue(queue);
            keys.push(match state.len() {
                0 if state.is_aside() => (state.class_aside(), 0, 0),
                0 => (NO_CLASS, 0, 0),
                1 => {
                    let entry = Entry::of(self.arena.slice(state.at), state.at);
                    (!entry.rank, entry.due, entry.order)
                }
                _ => {
                    let entry = self.heap(state.at).get(0);
                    (!entry.rank, entry.due, entry.order)
                }
            });
        }
        Ok(keys)
    }

    /// The class of each queue's best card, `NO_CLASS` where there is none.
    pub fn best(&self, queues: &[u32]) -> Result<Vec<u8>, Refusal> {
        let keys = self.best_keys(queues)?;
        Ok(keys.into_iter().map(|(klass, _, _)| klass).collect())
    }

    /// How many cards each queue holds, aside or here.
    pub fn waiting(&self, queues: &[u32]) -> Result<Vec<u32>, Refusal> {
        let mut counts = Vec::with_capacity(queues.len());
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
            let state = self.queue(queue);
            counts.push(state.len() as u32 + state.cards_aside());
        }
        Ok(counts)
    }

    /// Takes the card with this fingerprint out of the queue of each row, the best where there are several.
    pub fn remove(
        &mut self,
        queues: &[u32],
        fingerprints: &[u64],
    ) -> Result<(Vec<u8>, Cards), Refusal> {
        if queues.len() != fingerprints.len() {
            let (queues, prints) = (queues.len(), fingerprints.len());
            return Err(Refusal::Value(format!("{queues} queues and {prints} fingerprints")));
        }
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
        }
        // By queue, fingerprint and row.
        let mut order: Vec<u128> = (0_u128..)
            .zip(queues.iter().zip(fingerprints))
            .map(|(row, (&queue, &print))| u128::from(queue) << 96 | u128::from(print) << 32 | row)
            .collect();
        order.sort_unstable();
        let rows: Vec<usize> = order.iter().map(|&key| key as u32 as usize).collect();
        let groups: Vec<&[usize]> =
            rows.chunk_by(|&one, &other| queues[one] == queues[other]).collect();
        let mut removed = vec![None; queues.len()];
        for some in groups.chunks(ABREAST) {
            self.touch_cards(some.iter().map(|group| queues[group[0]]));
            for group in some {
                self.remove_group(queues[group[0]], group, fingerprints, &mut removed);
            }
        }
        let places: Vec<u32> = removed.iter().copied().flatten().collect();
        let found = removed.iter().map(|place| u8::from(place.is_some())).collect();
        Ok((found, self.give_out(&places)))
    }

    /// The rows of one queue, sorted by fingerprint and then as they were given.
    fn remove_group(
        &mut self,
        queue: u32,
        rows: &[usize],
        fingerprints: &[u64],
        removed: &mut [Option<u32>],
    ) {
        let state = self.queue(queue);
        let len = state.len();
        if len == 0 {
            return;
        }
        if len == 1 {
            let print = u64_at(self.arena.slice(state.at), FINGERPRINT);
            if let Some(&row) = rows.iter().find(|&&row| fingerprints[row] == print) {
                removed[row] = self.pop(queue);
            }
            return;
        }
        let heap = &mut self.heaps[state.at as usize / PART][state.at as usize % PART];
        let mut hits: Vec<(u64, usize)> = Vec::new();
        for at in 0..len {
            let print = u64_at(self.arena.slice(heap.get(at).place), FINGERPRINT);
            if rows.binary_search_by_key(&print, |&row| fingerprints[row]).is_ok() {
                hits.push((print, at));
            }
        }
        let arena = &self.arena;
        hits.sort_by(|one, other| {
            let best = || heap.get(one.1).compare(heap.get(other.1), arena);
            one.0.cmp(&other.0).then_with(best)
        });
        let mut chosen = Vec::with_capacity(hits.len());
        let mut hits = hits.into_iter().peekable();
        for &row in rows {
            while hits.next_if(|hit| hit.0 < fingerprints[row]).is_some() {}
            if let Some((_, at)) = hits.next_if(|hit| hit.0 == fingerprints[row]) {
                removed[row] = Some(heap.get(at).place);
                chosen.push(at);
            }
        }
        match chosen.as_slice() {
            [] => {}
            &[at] => {
                heap.remove(at, arena);
                self.settle(queue, state.at);
            }
            _ => {
                let gone: std::collections::HashSet<u32> =
                    chosen.iter().map(|&at| heap.get(at).place).collect();
                let mut entries = self.take_sorted(queue);
                entries.retain(|entry| !gone.contains(&entry.place));
                self.restore_sorted(queue, entries);
            }
        }
    }

    /// Takes the best `most` cards of one queue, the best first.
    pub fn drain(&mut self, queue: u32, most: usize) -> Result<Cards, Refusal> {
        check_row(queue, 0)?;
        let len = self.queue(queue).len();
        let places: Vec<u32> = if most > len / 8 {
            let mut entries = self.take_sorted(queue);
            let rest = entries.split_off(most.min(len));
            self.restore_sorted(queue, rest);
            entries.iter().map(|entry| entry.place).collect()
        } else {
            (0..most).map_while(|_| self.pop(queue)).collect()
        };
        Ok(self.give_out(&places))
    }

    /// Takes all but the best `keep` cards of one queue, the best of them first.
    pub fn spill(&mut self, queue: u32, keep: usize) -> Result<Cards, Refusal> {
        check_row(queue, 0)?;
        if self.queue(queue).len() <= keep {
            return Ok(self.give_out(&[]));
        }
        let mut entries = self.take_sorted(queue);
        let places: Vec<u32> = entries.split_off(keep).iter().map(|entry| entry.place).collect();
        self.restore_sorted(queue, entries);
        Ok(self.give_out(&places))
    }

    /// The best `most` cards of one queue, the best first; they stay where they are.
    pub fn peek(&self, queue: u32, most: usize) -> Result<Cards, Refusal> {
        check_row(queue, 0)?;
        let state = self.queue(queue);
        let places: Vec<u32> = match state.len() {
            0 => Vec::new(),
            1 => vec![state.at; most.min(1)],
            _ => {
                let best = self.heap(state.at).best(most, &self.arena);
                best.iter().map(|entry| entry.place).collect()
            }
        };
        let arena_bytes =
            places.iter().map(|&place| body_bytes(self.arena.slice(place))).sum::<usize>();
        let mut cards = Cards::with_capacity(places.len(), arena_bytes);
        for &place in &places {
            cards.push(self.arena.card(place));
        }
        Ok(cards)
    }

    /// The queues, in ascending order, that were given cards since this was last asked and hold more than `most` >= 1.
    pub fn heads_over(&mut self, most: usize) -> Result<Vec<u32>, Refusal> {
        if most == 0 {
            return Err(Refusal::Value("most is at least 1, not 0".to_owned()));
        }
        let mut over = Vec::new();
        for queue in std::mem::take(&mut self.listed) {
            let state = self.queue(queue);
            self.set_queue(queue, Queue { count: state.count & !LISTED, ..state });
            if state.len() > most {
                over.push(queue);
            }
        }
        over.sort_unstable();
        Ok(over)
    }

    /// Of `count` rows from `start` on, the queues that hold more than `most` cards; and where to go on, 0 at the end.
    pub fn longer_than(&self, start: u32, count: usize, most: usize) -> (Vec<u32>, u32) {
        self.rows_where(start, count, |len| len > most)
    }

    /// Likewise those that hold cards in memory, and few enough to be set aside.
    pub fn short(&self, start: u32, count: usize) -> (Vec<u32>, u32) {
        self.rows_where(start, count, |len| (1..=ASIDE_CARDS_MAX).contains(&len))
    }

    fn rows_where(
        &self,
        start: u32,
        count: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> (Vec<u32>, u32) {
        let end = (u64::from(start) + count as u64).min(self.rows);
        let rows = (u64::from(start)..end).map(|queue| queue as u32);
        let found = rows.filter(|&queue| wanted(self.queue(queue).len())).collect();
        (found, if end >= self.rows { 0 } else { end as u32 })
    }

    // ------------------------------------------------------------------------------------------------------- aside

    /// How many cards each queue has in memory, and all of them, queue by queue, the best first; they stay.
    pub fn whole(&self, queues: &[u32]) -> Result<(Vec<u32>, Cards), Refusal> {
        let mut counts = Vec::with_capacity(queues.len());
        let mut places = Vec::with_capacity(queues.len());
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
            let state = self.queue(queue);
            counts.push(state.len() as u32);
            match state.len() {
                0 => {}
                1 => places.push(state.at),
                len => {
                    let best = self.heap(state.at).best(len, &self.arena);
                    places.extend(best.iter().map(|entry| entry.place));
                }
            }
        }
        let arena_bytes =
            places.iter().map(|&place| body_bytes(self.arena.slice(place))).sum::<usize>();
        let mut cards = Cards::with_capacity(places.len(), arena_bytes);
        for &place in &places {
            cards.push(self.arena.card(place));
        }
        Ok((counts, cards))
    }

    /// The few cards of each queue leave memory: they lie at a place that somebody else knows. A queue that is aside only
    /// changes its place.
    pub fn set_aside(&mut self, queues: &[u32], places: &[u64]) -> Result<(), Refusal> {
        if queues.len() != places.len() {
            let (queues, places) = (queues.len(), places.len());
            return Err(Refusal::Value(format!("{queues} queues and {places} places")));
        }
        for (row, (&queue, &place)) in queues.iter().zip(places).enumerate() {
            check_row(queue, row)?;
            if place == 0 || place >> ASIDE_PLACE_BITS != 0 {
                return Err(Refusal::Value(format!("row {row}: {place} is no place")));
            }
            let state = self.queue(queue);
            let (len, (class, ..)) = (state.len(), self.best_keys(&[queue])?[0]);
            if !state.is_aside() && (len == 0 || len > ASIDE_CARDS_MAX || class > ASIDE_CLASS_MAX) {
                return Err(Refusal::Value(format!(
                    "row {row}: {len} cards of class {class} cannot be set aside"
                )));
            }
        }
        for (&queue, &place) in queues.iter().zip(places) {
            let state = self.queue(queue);
            let listed = state.count & LISTED;
            if state.is_aside() {
                let (cards, class) = (state.cards_aside(), state.class_aside());
                self.set_queue(queue, Queue::aside(listed, cards, class, place));
                continue;
            }
            let entries = self.take_sorted(queue);
            for entry in &entries {
                let bytes = self.arena.card(entry.place).len();
                self.arena.release(entry.place, bytes);
                self.bytes -= cost(bytes);
            }
            let (cards, class) = (entries.len() as u32, !entries[0].rank);
            self.cards -= u64::from(cards);
            self.aside += 1;
            self.cards_aside += u64::from(cards);
            self.set_queue(queue, Queue::aside(listed, cards, class, place));
        }
        Ok(())
    }

    /// Where the cards of each queue lie that is aside, 0 for others.
    pub fn aside(&self, queues: &[u32]) -> Result<Vec<u64>, Refusal> {
        let mut places = Vec::with_capacity(queues.len());
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
            places.push(self.queue(queue).place_aside());
        }
        Ok(places)
    }

    /// Those of the queues that are aside are empty from now on: their cards are put anew, or forgotten.
    pub fn forget_aside(&mut self, queues: &[u32]) -> Result<(), Refusal> {
        for (row, &queue) in queues.iter().enumerate() {
            check_row(queue, row)?;
        }
        for &queue in queues {
            let state = self.queue(queue);
            if state.is_aside() {
                self.aside -= 1;
                self.cards_aside -= u64::from(state.cards_aside());
                self.set_queue(queue, Queue { count: state.count & LISTED, at: 0 });
            }
        }
        Ok(())
    }
}
