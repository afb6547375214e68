//! Messages of the protocol as columns: the fields of many items in one arena, with their spans.

/// A varint at the beginning of `bytes`: its value, and the rest.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        if place == 9 && *byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}

/// One field: its number, and a number or octets. Fields of fixed size are passed over.
enum Value<'a> {
    Number(u64),
    Octets(&'a [u8]),
    Other,
}

/// The next field of a message, and the rest; None for octets that are not a message.
fn field(bytes: &[u8]) -> Option<(u32, Value<'_>, &[u8])> {
    let (tag, rest) = varint(bytes)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    match tag & 7 {
        0 => varint(rest).map(|(value, rest)| (number, Value::Number(value), rest)),
        1 => Some((number, Value::Other, rest.get(8..)?)),
        2 => {
            let (size, rest) = varint(rest)?;
            let (octets, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
            Some((number, Value::Octets(octets), rest))
        }
        5 => Some((number, Value::Other, rest.get(4..)?)),
        _ => None,
    }
}

/// Appends a varint.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field of octets; an empty one is left out, as proto3 does.
pub fn write_field(out: &mut Vec<u8>, number: u32, octets: &[u8]) {
    if !octets.is_empty() {
        write_varint(out, u64::from(number << 3 | 2));
        write_varint(out, octets.len() as u64);
        out.extend_from_slice(octets);
    }
}

/// Appends a field of a number; 0 is left out.
pub fn write_number(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        write_varint(out, u64::from(number << 3));
        write_varint(out, value);
    }
}

/// What an item is.
pub const NEITHER: u8 = 0;
/// A URL that was discovered.
pub const DISCOVERED: u8 = 1;
/// A URL with a date.
pub const KNOWN: u8 = 2;
/// Octets that are not a message of this type.
pub const MALFORMED: u8 = 3;

/// Where a text is in the arena.
pub type Span = (u32, u32);

/// Items of `PutURLs` and `PutDiscovered` in columns. `batch` has the place of its batch in `batches`, and `u32::MAX` for an
/// item that came alone. `metadata` is JSON: an object of lists of texts, "" without any.
#[derive(Default)]
pub struct Items {
    /// The stream of each item.
    pub streams: Vec<u64>,
    /// What each item is.
    pub branches: Vec<u8>,
    /// The URLs.
    pub urls: Vec<Span>,
    /// The keys of their queues.
    pub keys: Vec<Span>,
    /// The ids of their crawls.
    pub crawls: Vec<Span>,
    /// Their metadata.
    pub metadata: Vec<Span>,
    /// The ids that the acknowledgements repeat.
    pub ids: Vec<Span>,
    /// Seconds since 1970; 0 for a URL that is done.
    pub dates: Vec<u64>,
    /// Seconds since 1970 at which a URL was discovered; 0 if the client gave no date, which means the instant of arrival.
    pub created: Vec<u64>,
    /// The batch of each item.
    pub batches_of: Vec<u32>,
    /// The batches: stream and id.
    pub batches: Vec<(u64, Span)>,
    /// The octets of all texts.
    pub arena: Vec<u8>,
}

const EMPTY: Span = (0, 0);

#[derive(Default)]
struct Info<'a> {
    url: &'a [u8],
    key: &'a [u8],
    crawl: &'a [u8],
    metadata: Vec<(&'a [u8], Vec<&'a [u8]>)>,
}

impl<'a> Info<'a> {
    fn read(&mut self, mut bytes: &'a [u8]) -> Option<()> {
        while !bytes.is_empty() {
            let (number, value, rest) = field(bytes)?;
            bytes = rest;
            let Value::Octets(octets) = value else { continue };
            match number {
                1 => self.url = text(octets)?,
                2 => self.key = text(octets)?,
                3 => self.entry(octets)?,
                4 => self.crawl = text(octets)?,
                _ => {}
            }
        }
        Some(())
    }

    fn entry(&mut self, mut bytes: &'a [u8]) -> Option<()> {
        let (mut name, mut values): (&[u8], Vec<&[u8]>) = (b"", Vec::new());
        while !bytes.is_empty() {
            let (number, value, rest) = field(bytes)?;
            bytes = rest;
            match (number, value) {
                (1, Value::Octets(octets)) => name = text(octets)?,
                (2, Value::Octets(mut list)) => {
                    values.clear();
                    while !list.is_empty() {
                        let (number, value, rest) = field(list)?;
                        list = rest;
                        if let (1, Value::Octets(octets)) = (number, value) {
                            values.push(text(octets)?);
                        }
                    }
                }
                _ => {}
            }
        }
        // The last of equal names counts.
        self.metadata.retain(|(known, _)| *known != name);
        self.metadata.push((name, values));
        Some(())
    }
}

/// Octets of a text, which must be UTF-8.
fn text(octets: &[u8]) -> Option<&[u8]> {
    std::str::from_utf8(octets).ok().map(str::as_bytes)
}

fn write_json_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..=0x1F => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

impl Items {
    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether the turn is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// A text of the arena.
    #[must_use]
    pub fn text(&self, span: Span) -> &[u8] {
        &self.arena[span.0 as usize..span.1 as usize]
    }

    fn keep(&mut self, octets: &[u8]) -> Span {
        if octets.is_empty() {
            return EMPTY;
        }
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(octets);
        (start, self.arena.len() as u32)
    }

    fn keep_metadata(&mut self, metadata: &[(&[u8], Vec<&[u8]>)]) -> Span {
        if metadata.is_empty() {
            return EMPTY;
        }
        let (start, out) = (self.arena.len() as u32, &mut self.arena);
        for (place, (name, values)) in metadata.iter().enumerate() {
            out.push(if place == 0 { b'{' } else { b',' });
            write_json_text(out, name);
            out.extend_from_slice(b":[");
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write_json_text(out, value);
            }
            out.push(b']');
        }
        out.push(b'}');
        (start, self.arena.len() as u32)
    }

    fn push(&mut self, stream: u64, branch: u8, info: &Info<'_>, batch: u32) {
        self.streams.push(stream);
        self.branches.push(branch);
        let url = self.keep(info.url);
        self.urls.push(url);
        let key = self.keep(info.key);
        self.keys.push(key);
        // Most items of a stream belong to one crawl.
        let crawl = match self.crawls.last() {
            Some(last) if self.text(*last) == info.crawl => *last,
            _ => self.keep(info.crawl),
        };
        self.crawls.push(crawl);
        let metadata = self.keep_metadata(&info.metadata);
        self.metadata.push(metadata);
        self.ids.push(EMPTY);
        self.dates.push(0);
        self.created.push(0);
        self.batches_of.push(batch);
    }

    /// Adds a message of the type `URLItem`.
    pub fn add_item(&mut self, stream: u64, message: &[u8]) {
        let mut info = Info::default();
        let (mut branch, mut id, mut date, mut created): (u8, &[u8], u64, u64) =
            (NEITHER, b"", 0, 0);
        let mut read = || -> Option<()> {
            let mut bytes = message;
            while !bytes.is_empty() {
                let (number, value, rest) = field(bytes)?;
                bytes = rest;
                match (number, value) {
                    (1 | 2, Value::Octets(mut inner)) => {
                        // Of the branches of a oneof the last one counts.
                        (branch, info, date) = (number as u8, Info::default(), 0);
                        while !inner.is_empty() {
                            let (number, value, rest) = field(inner)?;
                            inner = rest;
                            match (number, value) {
                                (1, Value::Octets(octets)) => info.read(octets)?,
                                (2, Value::Number(value)) if branch == KNOWN => date = value,
                                _ => {}
                            }
                        }
                    }
                    (3, Value::Octets(octets)) => id = text(octets)?,
                    (4, Value::Number(value)) => created = value,
                    _ => {}
                }
            }
            Some(())
        };
        if read().is_none() {
            (branch, info) = (MALFORMED, Info::default());
        }
        self.push(stream, branch, &info, u32::MAX);
        if let Some(place) = self.ids.len().checked_sub(1) {
            self.ids[place] = self.keep(id);
            self.dates[place] = date;
            self.created[place] = created;
        }
    }

    /// Adds a message of the type `DiscoveredBatch`. One that is not a message is an item `MALFORMED` without a batch.
    pub fn add_batch(&mut self, stream: u64, message: &[u8]) {
        let batch = self.batches.len() as u32;
        let (mut id, mut infos): (&[u8], Vec<Info<'_>>) = (b"", Vec::new());
        let mut read = || -> Option<()> {
            let mut bytes = message;
            while !bytes.is_empty() {
                let (number, value, rest) = field(bytes)?;
                bytes = rest;
                match (number, value) {
                    (1, Value::Octets(octets)) => id = text(octets)?,
                    (2, Value::Octets(octets)) => {
                        let mut info = Info::default();
                        info.read(octets)?;
                        infos.push(info);
                    }
                    _ => {}
                }
            }
            Some(())
        };
        if read().is_none() {
            self.push(stream, MALFORMED, &Info::default(), u32::MAX);
            return;
        }
        let id = self.keep(id);
        self.batches.push((stream, id));
        for info in &infos {
            self.push(stream, DISCOVERED, info, batch);
        }
    }

    /// The acknowledgements of all items, a chunk for each stream in the order of the streams' first items: of each item
    /// alone an `AckMessage`, of each batch a `BatchAck`. statuses: one per item.
    #[must_use]
    pub fn acknowledgements(&self, statuses: &[u8]) -> Vec<(u64, Vec<Vec<u8>>)> {
        let mut chunks: Vec<(u64, Vec<Vec<u8>>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        let mut add = |stream: u64, message: Vec<u8>| {
            let place = *places.entry(stream).or_insert_with(|| {
                chunks.push((stream, Vec::new()));
                chunks.len() - 1
            });
            chunks[place].1.push(message);
        };
        let mut of_batches: Vec<Vec<u8>> = vec![Vec::new(); self.batches.len()];
        for (row, status) in statuses.iter().enumerate().take(self.len()) {
            if let Some(list) = of_batches.get_mut(self.batches_of[row] as usize) {
                list.push(*status);
            } else if self.branches[row] != MALFORMED {
                let mut message = Vec::new();
                let id = if self.ids[row] == EMPTY { self.urls[row] } else { self.ids[row] };
                write_field(&mut message, 1, self.text(id));
                write_number(&mut message, 2, u64::from(*status));
                add(self.streams[row], message);
            }
        }
        for ((stream, id), list) in self.batches.iter().zip(&of_batches) {
            let mut message = Vec::new();
            write_field(&mut message, 1, self.text(*id));
            write_field(&mut message, 2, list); // each status is a varint of one byte
            add(*stream, message);
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(url: &[u8]) -> Vec<u8> {
        let mut list = Vec::new();
        write_field(&mut list, 1, b"a \"b\"");
        let mut entry = Vec::new();
        write_field(&mut entry, 1, b"n");
        write_field(&mut entry, 2, &list);
        let mut message = Vec::new();
        write_field(&mut message, 1, url);
        write_field(&mut message, 2, b"key");
        write_field(&mut message, 3, &entry);
        message
    }

    #[test]
    fn an_item_becomes_a_row() {
        let mut known = Vec::new();
        write_field(&mut known, 1, &info(b"http://a/"));
        write_number(&mut known, 2, 77);
        let mut message = Vec::new();
        write_field(&mut message, 2, &known);
        write_field(&mut message, 3, b"id");
        let mut items = Items::default();
        items.add_item(5, &message);
        items.add_item(6, &[]);
        items.add_item(7, &[0x0A, 0x05, 1]);
        assert_eq!(items.branches, [KNOWN, NEITHER, MALFORMED]);
        assert_eq!(items.text(items.urls[0]), b"http://a/");
        assert_eq!(items.text(items.metadata[0]), br#"{"n":["a \"b\""]}"#);
        assert_eq!((items.dates[0], items.text(items.ids[0])), (77, &b"id"[..]));
        let acks = items.acknowledgements(&[1, 1, 2]);
        assert_eq!(acks.len(), 2); // what is malformed ends its stream
        assert_eq!(acks[0], (5, vec![b"\x0A\x02id\x10\x01".to_vec()]));
        assert_eq!(acks[1], (6, vec![b"\x10\x01".to_vec()]));
    }

    #[test]
    fn a_batch_has_one_answer_in_order() {
        let mut message = Vec::new();
        write_field(&mut message, 1, b"b1");
        write_field(&mut message, 2, &info(b"http://a/"));
        write_field(&mut message, 2, &info(b"http://b/"));
        let mut items = Items::default();
        items.add_batch(9, &message);
        items.add_batch(9, &[]);
        let acks = items.acknowledgements(&[0, 1]);
        assert_eq!(acks, [(9, vec![b"\x0A\x02b1\x12\x02\x00\x01".to_vec(), Vec::new()])]);
    }

    #[test]
    fn varints_longer_than_64_bits_are_refused() {
        assert!(varint(&[0xFF; 11]).is_none());
        assert!(varint(&[0x80, 0x80]).is_none());
        assert_eq!(varint(&[0xAC, 0x02, 9]), Some((300, &[9][..])));
    }
}
