//! A sitemap in XML as columns (sitemaps.org 0.90): one pass over the bytes, nothing expanded, opened or asked for.
//!
//! Semantics are written at the twin, `src/outrider/kernels/sitemap.py`.

use memchr::memmem::Finder;
use memchr::{memchr, memchr3};

/// How much of a sitemap is kept: the first ones each time.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Addresses.
    pub entries: usize,
    /// Elements within each other; a deeper document is no sitemap.
    pub depth: usize,
    /// Of each number.
    pub problems: usize,
    /// Of a date, and of what a problem quotes.
    pub field_characters: usize,
}

/// Kinds by number, as the twin has them; 0 is none.
const URLSET: u8 = 1;
const INDEX: u8 = 2;
const RSS: u8 = 3;
const ATOM: u8 = 4;

/// Problems by number, as the twin has them; from `WRONG` on the document is no sitemap.
const CUT: u8 = 0;
const FULL: u8 = 1;
const SUBSET: u8 = 2;
const ENTITY: u8 = 3;
const WRONG_TAG: u8 = 4;
const WRONG_END: u8 = 5;
const WRONG_DEPTH: u8 = 6;
const WRONG_SECOND: u8 = 7;
const WRONG_ROOT: u8 = 8;

/// What a lastmod is: nothing, a date as W3C writes it, or a text.
const DATED: u8 = 1;
const TEXT: u8 = 2;
/// The relation of an entry of Atom to itself, written out (RFC 4287 section 4.2.7.2).
const ALTERNATE: &[u8] = b"http://www.iana.org/assignments/relation/alternate";
const CHANGES: [&[u8]; 7] =
    [b"always", b"hourly", b"daily", b"weekly", b"monthly", b"yearly", b"never"];

/// The columns of a sitemap, one row for each address.
#[derive(Default)]
pub struct Columns {
    /// 0 for what is no sitemap.
    pub kind: u8,
    /// The addresses as written, references undone.
    pub arena: Vec<u8>,
    /// Where each address begins, and where the last ends.
    pub offsets: Vec<i64>,
    /// The dates.
    pub dates: Vec<u8>,
    /// Where each date begins, and where the last ends.
    pub date_offsets: Vec<i64>,
    /// None, one as W3C writes it, another text.
    pub date_kinds: Vec<u8>,
    /// How often a page changes, by number; 0 where nothing is said.
    pub changes: Vec<u8>,
    /// From 0 to 1, else no number.
    pub priorities: Vec<f64>,
    /// The base of each address by number, from 1; 0 for the URL of the document.
    pub bases: Vec<u32>,
    /// The bases: the number of the one that each is relative to, and as written.
    pub base_texts: Vec<(u32, String)>,
    /// By number, and what each speaks of.
    pub problems: Vec<(u8, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Other,
    Root(u8),
    Holder(u8),
    Location,
    Link,
    Guid,
    Lastmod,
    Published,
    Change,
    Priority,
}

fn name_of(local: &[u8]) -> Name {
    let mut lower = [0; 12];
    let Some(lower) = lower.get_mut(..local.len()) else { return Name::Other };
    lower.copy_from_slice(local);
    lower.make_ascii_lowercase();
    match &*lower {
        b"urlset" => Name::Root(URLSET),
        b"sitemapindex" => Name::Root(INDEX),
        b"rss" | b"rdf" => Name::Root(RSS),
        b"feed" => Name::Root(ATOM),
        b"url" => Name::Holder(URLSET),
        b"sitemap" => Name::Holder(INDEX),
        b"item" => Name::Holder(RSS),
        b"entry" => Name::Holder(ATOM),
        b"loc" => Name::Location,
        b"link" => Name::Link,
        b"guid" => Name::Guid,
        b"lastmod" | b"pubdate" | b"date" | b"updated" => Name::Lastmod,
        b"published" => Name::Published,
        b"changefreq" => Name::Change,
        b"priority" => Name::Priority,
        _ => Name::Other,
    }
}

/// The columns of a document in UTF-8.
#[must_use]
pub fn read(octets: &[u8], limits: Limits) -> Columns {
    let mut reader = Reader {
        octets,
        limits,
        found: Columns { offsets: vec![0], date_offsets: vec![0], ..Columns::default() },
        told: [0; 9],
        stack: Vec::new(),
        typed: false,
        pieces: Vec::new(),
        field_depth: 0,
        new: true,
        permanent: Permanent::Maybe,
        guid: None,
        has_address: false,
        date: (Vec::new(), false),
        published: None,
        change: 0,
        priority: f64::NAN,
    };
    let broken = reader.elements();
    reader.flush();
    if let Err((code, more)) = broken {
        // What stands before the break is kept; where nothing does it is no sitemap.
        if reader.found.date_kinds.is_empty() {
            reader.found.kind = 0;
        }
        reader.problem(code, more);
    }
    reader.found
}

type Wrong = (u8, String);

/// What a guid says of itself: whether it is an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permanent {
    Yes,
    No,
    /// It says nothing: it is one if it looks like one.
    Maybe,
}

struct Open<'o> {
    name: &'o [u8],
    known: Name,
    /// The number of the base that holds inside.
    base: u32,
}

struct Reader<'o> {
    octets: &'o [u8],
    limits: Limits,
    found: Columns,
    told: [usize; 9],
    stack: Vec<Open<'o>>,
    /// A document type was looked for.
    typed: bool,
    /// The text of the field that is being read.
    pieces: Vec<u8>,
    /// How deep its element is; 0 for none.
    field_depth: usize,
    /// The entry that was begun has no address yet.
    new: bool,
    /// What the guid that is being read says of itself.
    permanent: Permanent,
    /// The guid of the entry that is an address, and its base.
    guid: Option<(String, u32)>,
    /// An address was taken whose fields are not written yet.
    has_address: bool,
    /// The date of the entry, and whether there is one.
    date: (Vec<u8>, bool),
    published: Option<Vec<u8>>,
    change: u8,
    priority: f64,
}

impl<'o> Reader<'o> {
    fn problem(&mut self, code: u8, more: String) {
        let told = &mut self.told[usize::from(code)];
        *told += 1;
        if *told <= self.limits.problems {
            self.found.problems.push((code, more));
        }
    }

    fn shown(&self, octets: &[u8]) -> String {
        String::from_utf8_lossy(octets).chars().take(self.limits.field_characters).collect()
    }

    fn elements(&mut self) -> Result<(), Wrong> {
        let octets = self.octets;
        let mut at = 0;
        loop {
            let Some(found) = memchr(b'<', &octets[at..]) else {
                if !self.stack.is_empty() {
                    self.problem(CUT, String::new());
                }
                return Ok(());
            };
            let open = at + found;
            if self.field_depth > 0 {
                self.pieces.extend_from_slice(&octets[at..open]);
            }
            let mark = octets.get(open + 1).copied().unwrap_or(0);
            if matches!(mark, b'!' | b'?') {
                match self.aside(open) {
                    Some(end) => at = end,
                    None => {
                        self.problem(CUT, String::new());
                        return Ok(());
                    }
                }
                continue;
            }
            let closing = mark == b'/';
            let name_at = open + 1 + usize::from(closing);
            let Some(end) = tag_end(octets, name_at) else {
                self.problem(CUT, String::new());
                if self.field_depth > 0 {
                    self.field();
                }
                return Ok(());
            };
            let length = octets[name_at..]
                .iter()
                .position(|octet| is_space(*octet) || matches!(octet, b'/' | b'>'))
                .unwrap_or(0);
            if length == 0 {
                return Err((WRONG_TAG, String::new()));
            }
            let name = &octets[name_at..name_at + length];
            at = end;
            if closing {
                self.close(name)?;
            } else if !self.open(name, &octets[name_at + length..end - 1])? {
                return Ok(());
            }
        }
    }

    fn close(&mut self, name: &[u8]) -> Result<(), Wrong> {
        if self.stack.last().is_none_or(|open| open.name != name) {
            return Err((WRONG_END, self.shown(name)));
        }
        if self.field_depth == self.stack.len() {
            self.field();
        }
        self.stack.pop();
        Ok(())
    }

    /// Takes a start tag; false when there is no more room.
    fn open(&mut self, name: &'o [u8], rest: &'o [u8]) -> Result<bool, Wrong> {
        let local = &name[memchr::memrchr(b':', name).map_or(0, |colon| colon + 1)..];
        let known = name_of(local);
        if self.stack.is_empty() {
            if self.found.kind != 0 {
                return Err((WRONG_SECOND, String::new()));
            }
            let Name::Root(kind) = known else { return Err((WRONG_ROOT, self.shown(name))) };
            self.found.kind = kind;
        } else if self.stack.len() >= self.limits.depth {
            return Err((WRONG_DEPTH, String::new()));
        }
        let kind = self.found.kind;
        let holder = self.stack.last().is_some_and(|above| above.known == Name::Holder(kind));
        let base = self.base(kind, rest);
        if kind == ATOM && known == Name::Link && holder && !self.atom_link(rest, base) {
            return Ok(false);
        }
        if rest.last() == Some(&b'/') {
            return Ok(true);
        }
        self.stack.push(Open { name, known, base });
        if self.field_depth > 0 {
            return Ok(true);
        }
        if known == Name::Holder(kind) {
            self.flush();
            self.new = true;
        }
        let address = known == if kind == RSS { Name::Link } else { Name::Location };
        let about =
            matches!(known, Name::Lastmod | Name::Published | Name::Change | Name::Priority);
        let guid = kind == RSS && known == Name::Guid;
        if guid {
            self.permanent = permanent(rest);
        }
        if holder && (address || about || guid) {
            let begins = address || (guid && self.new && !self.has_address);
            if begins && self.found.offsets.len() > self.limits.entries {
                self.problem(FULL, String::new());
                return Ok(false);
            }
            self.pieces.clear();
            self.field_depth = self.stack.len();
        }
        Ok(true)
    }

    /// The number of the base inside an element: in a feed it may name one (XML Base), else it has that around it.
    fn base(&mut self, kind: u8, rest: &[u8]) -> u32 {
        const NAME: &[u8] = b"xml:base";
        let around = self.stack.last().map_or(0, |above| above.base);
        let feed = kind == RSS || kind == ATOM;
        if !feed || rest.len() < NAME.len() || memchr::memmem::find(rest, NAME).is_none() {
            return around;
        }
        let mut written = None;
        attributes(rest, |name, value| {
            if name == NAME {
                written = Some(value);
            }
        });
        // An entry has two at most that count, and as many as it may be deep are around all.
        let most = 2 * self.limits.entries + self.limits.depth;
        let text = written
            .filter(|_| self.found.base_texts.len() < most)
            .and_then(|written| self.decoded(written));
        let Some(text) = text else { return around };
        self.found.base_texts.push((around, trimmed(&text).to_owned()));
        self.found.base_texts.len() as u32
    }

    /// Passes over a comment, a declaration or an instruction, and reads a CDATA section; `None`: it has no end.
    fn aside(&mut self, at: usize) -> Option<usize> {
        let octets = self.octets;
        let rest = &octets[at..];
        if rest.starts_with(b"<!--") {
            return behind(octets, b"-->", at + 4);
        }
        if rest.starts_with(b"<![CDATA[") {
            let end = behind(octets, b"]]>", at + 9)?;
            if self.field_depth > 0 {
                for octet in &octets[at + 9..end - 3] {
                    // Its text stands for itself.
                    if *octet == b'&' {
                        self.pieces.extend_from_slice(b"&amp;");
                    } else {
                        self.pieces.push(*octet);
                    }
                }
            }
            return Some(end);
        }
        if rest.starts_with(b"<?") {
            return behind(octets, b"?>", at + 2);
        }
        // There is one, in front: a second look for the end of each would make a bomb of many.
        if !std::mem::replace(&mut self.typed, true) {
            if let Some(end) = document_type(octets, at) {
                self.problem(SUBSET, String::new());
                return Some(end);
            }
        }
        behind(octets, b">", at)
    }

    /// Takes the text of the field: an address, or something about the entry.
    fn field(&mut self) {
        let Open { known: name, base, .. } = self.stack[self.field_depth - 1];
        self.field_depth = 0;
        let pieces = std::mem::take(&mut self.pieces);
        let text = self.decoded(&pieces);
        self.pieces = pieces;
        let Some(text) = text else { return };
        let text = trimmed(&text);
        match name {
            Name::Location | Name::Link => {
                if !text.is_empty() {
                    self.take(text, base);
                }
                self.new = false;
            }
            Name::Guid => {
                let is_address = match self.permanent {
                    Permanent::Yes => !text.is_empty(),
                    Permanent::No => false,
                    Permanent::Maybe => looks_like_an_address(text),
                };
                if is_address && self.guid.is_none() {
                    self.guid = Some((text.to_owned(), base));
                }
            }
            _ if text.is_empty() => {}
            Name::Lastmod => self.date = (self.cut(text), true),
            Name::Published => self.published = Some(self.cut(text)),
            Name::Change => {
                let word = text.to_ascii_lowercase();
                let place = CHANGES.iter().position(|one| *one == word.as_bytes());
                self.change = place.map_or(0, |place| place as u8 + 1);
            }
            Name::Priority => self.priority = share(text),
            _ => {}
        }
    }

    fn cut(&self, text: &str) -> Vec<u8> {
        text.chars().take(self.limits.field_characters).collect::<String>().into_bytes()
    }

    /// Takes the first link of an entry that is the entry itself; false when there is no more room.
    fn atom_link(&mut self, rest: &[u8], base: u32) -> bool {
        if !self.new {
            return true;
        }
        let (mut href, mut itself) = (&b""[..], true);
        attributes(rest, |name, value| {
            if name.eq_ignore_ascii_case(b"href") {
                href = value;
            } else if name.eq_ignore_ascii_case(b"rel") {
                itself = value.eq_ignore_ascii_case(b"alternate")
                    || value.eq_ignore_ascii_case(ALTERNATE);
            }
        });
        if !itself {
            return true;
        }
        self.new = false;
        let Some(text) = self.decoded(href) else { return true };
        let text = trimmed(&text);
        if text.is_empty() {
            return true;
        }
        if self.found.offsets.len() > self.limits.entries {
            self.problem(FULL, String::new());
            return false;
        }
        self.take(text, base);
        true
    }

    /// Takes an address. One entry has several where a feed or a sitemap is wrong: each is an entry then.
    fn take(&mut self, text: &str, base: u32) {
        if self.has_address {
            self.flush();
        }
        self.found.arena.extend_from_slice(text.as_bytes());
        self.found.offsets.push(self.found.arena.len() as i64);
        self.found.bases.push(base);
        self.has_address = true;
    }

    /// Writes the fields of the entry that ended, if it has an address, and forgets them.
    fn flush(&mut self) {
        if let (Some((guid, base)), false) = (self.guid.take(), self.has_address) {
            self.take(&guid, base);
        }
        let (date, dated) = std::mem::take(&mut self.date);
        let published = self.published.take();
        let change = std::mem::take(&mut self.change);
        let priority = std::mem::replace(&mut self.priority, f64::NAN);
        if !std::mem::take(&mut self.has_address) {
            return;
        }
        let date = if dated { Some(date) } else { published };
        let kind = date.as_deref().map_or(0, |date| if is_date(date) { DATED } else { TEXT });
        self.found.dates.extend_from_slice(date.as_deref().unwrap_or(b""));
        self.found.date_offsets.push(self.found.dates.len() as i64);
        self.found.date_kinds.push(kind);
        self.found.changes.push(change);
        self.found.priorities.push(priority);
    }

    /// A text with the references of XML undone; `None` if it names an entity.
    fn decoded(&mut self, octets: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(octets);
        let mut rest = &*text;
        let mut made = String::with_capacity(rest.len());
        let mut unknown: Option<String> = None;
        while let Some(at) = memchr(b'&', rest.as_bytes()) {
            made.push_str(&rest[..at]);
            rest = &rest[at..];
            match reference(rest) {
                Some((Ok(character), length)) => {
                    made.push(character);
                    rest = &rest[length..];
                }
                Some((Err(name), length)) => {
                    unknown.get_or_insert_with(|| name.to_owned());
                    rest = &rest[length..];
                }
                None => {
                    made.push('&');
                    rest = &rest[1..];
                }
            }
        }
        if let Some(name) = unknown {
            self.problem(ENTITY, name.chars().take(40).collect());
            return None;
        }
        made.push_str(rest);
        Some(made)
    }
}

/// The character that a reference stands for, or the name of an entity that is not expanded, and its length.
fn reference(text: &str) -> Option<(Result<char, &str>, usize)> {
    let octets = text.as_bytes();
    let end = octets.iter().take(44).position(|octet| *octet == b';')?;
    let name = &text[1..end];
    let number = |digits: &str, radix: u32, most: usize| {
        let good = (1..=most).contains(&digits.len())
            && digits.bytes().all(|digit| char::from(digit).is_digit(radix));
        let code = good.then(|| u32::from_str_radix(digits, radix).ok()).flatten()?;
        Some(char::from_u32(code).filter(|_| code > 0).unwrap_or('\u{fffd}'))
    };
    if let Some(digits) = name.strip_prefix('#') {
        let found = match digits.strip_prefix(['x', 'X']) {
            Some(digits) => number(digits, 16, 8),
            None => number(digits, 10, 9),
        };
        return found.map(|character| (Ok(character), end + 1));
    }
    let first = *name.as_bytes().first()?;
    let fits = name.len() <= 41
        && (first.is_ascii_alphabetic() || first == b'_')
        && name.bytes().all(|o| o.is_ascii_alphanumeric() || matches!(o, b'.' | b'_' | b'-'));
    if !fits {
        return None;
    }
    let known = match name {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(name),
    };
    Some((known, end + 1))
}

/// What a guid says of itself.
fn permanent(rest: &[u8]) -> Permanent {
    let mut found = Permanent::Maybe;
    attributes(rest, |name, value| {
        if name.eq_ignore_ascii_case(b"isPermaLink") {
            let no = value.trim_ascii().eq_ignore_ascii_case(b"false");
            found = if no { Permanent::No } else { Permanent::Yes };
        }
    });
    found
}

/// Whether a guid that says nothing of itself is an address: many are numbers or words.
fn looks_like_an_address(text: &str) -> bool {
    let begins = |with: &[u8]| {
        text.as_bytes().get(..with.len()).is_some_and(|front| front.eq_ignore_ascii_case(with))
    };
    begins(b"http://") || begins(b"https://") || begins(b"/")
}

/// White space at both ends taken off, as Python's `str.strip` does.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|one: char| one.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&one))
}

const fn is_space(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn behind(octets: &[u8], mark: &[u8], at: usize) -> Option<usize> {
    Finder::new(mark).find(octets.get(at..)?).map(|found| at + found + mark.len())
}

/// Where the tag ends whose name begins here: behind the first > that stands in no quotes.
fn tag_end(octets: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr3(b'>', b'"', b'\'', &octets[at..])?;
        if octets[at] == b'>' {
            return Some(at + 1);
        }
        at += 2 + memchr(octets[at], &octets[at + 1..])?;
    }
}

/// Where the document type ends that begins here; `None` where there is none, or none that ends.
fn document_type(octets: &[u8], at: usize) -> Option<usize> {
    let start = octets.get(at..at + 9)?;
    if !start.eq_ignore_ascii_case(b"<!DOCTYPE") {
        return None;
    }
    let mut at = at + 9;
    at += octets[at..].iter().position(|octet| matches!(octet, b'[' | b'>'))?;
    if octets[at] == b'[' {
        at += 1;
        loop {
            at += memchr3(b']', b'"', b'\'', &octets[at..])?;
            if octets[at] == b']' {
                break;
            }
            at += 2 + memchr(octets[at], &octets[at + 1..])?;
        }
        at += 1;
        at += octets[at..].iter().position(|octet| !is_space(*octet))?;
    }
    (octets[at] == b'>').then_some(at + 1)
}

/// Tells the attributes of a tag that have a value in quotes, in order.
fn attributes<'r>(rest: &'r [u8], mut tell: impl FnMut(&'r [u8], &'r [u8])) {
    let parts = |octet: u8| is_space(octet) || matches!(octet, b'=' | b'/' | b'"' | b'\'');
    let spaces = |at: usize| at + rest[at..].iter().take_while(|octet| is_space(**octet)).count();
    let mut at = 0;
    while at < rest.len() {
        let length = rest[at..].iter().take_while(|octet| !parts(**octet)).count();
        if length == 0 {
            at += 1;
            continue;
        }
        let name = &rest[at..at + length];
        at += length;
        let equals = spaces(at);
        if rest.get(equals) != Some(&b'=') {
            continue;
        }
        let quote = spaces(equals + 1);
        let Some(mark @ (b'"' | b'\'')) = rest.get(quote).copied() else { continue };
        let Some(value) = memchr(mark, &rest[quote + 1..]) else { continue };
        tell(name, &rest[quote + 1..quote + 1 + value]);
        at = quote + value + 2;
    }
}

/// Whether it is a date and time as W3C writes it: 2024, 2024-02, 2024-02-29, 2024-02-29T12:00:00.5+01:00.
fn is_date(text: &[u8]) -> bool {
    let digits = |at: usize, count: usize| {
        text.get(at..at + count).is_some_and(|some| some.iter().all(u8::is_ascii_digit))
    };
    let is = |at: usize, octet: u8| text.get(at) == Some(&octet);
    if !digits(0, 4) {
        return false;
    }
    let mut at = 4;
    for _ in 0..2 {
        if at == text.len() {
            return true;
        }
        if !(is(at, b'-') && digits(at + 1, 2)) {
            return false;
        }
        at += 3;
    }
    if at == text.len() {
        return true;
    }
    if !(is(at, b'T') || is(at, b' '))
        || !digits(at + 1, 2)
        || !is(at + 3, b':')
        || !digits(at + 4, 2)
    {
        return false;
    }
    at += 6;
    if is(at, b':') && digits(at + 1, 2) {
        at += 3;
        if is(at, b'.') {
            let count = text[at + 1..].iter().take_while(|octet| octet.is_ascii_digit()).count();
            if !(1..=9).contains(&count) {
                return false;
            }
            at += 1 + count;
        }
    }
    match text.get(at) {
        None => true,
        Some(b'Z') => at + 1 == text.len(),
        Some(b'+' | b'-') if digits(at + 1, 2) => {
            let minutes = at + 3 + usize::from(is(at + 3, b':'));
            digits(minutes, 2) && minutes + 2 == text.len()
        }
        _ => false,
    }
}

/// A number from 0 to 1 in decimal digits; else not a number.
fn share(text: &str) -> f64 {
    let plain = text.len() <= 40
        && text.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.')
        && text.bytes().any(|octet| octet.is_ascii_digit())
        && text.bytes().filter(|octet| *octet == b'.').count() <= 1;
    let value: f64 = if plain { text.parse().unwrap_or(f64::NAN) } else { f64::NAN };
    if (0.0..=1.0).contains(&value) {
        value
    } else {
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::{is_date, read, share, Limits};

    const LIMITS: Limits = Limits { entries: 3, depth: 8, problems: 2, field_characters: 100 };

    #[test]
    fn an_entry_has_its_fields_wherever_they_stand() {
        let text = b"<urlset><url><lastmod>2024</lastmod><loc> http://a/?x&amp;y </loc><priority>0.7</priority></url>\
            <url><lastmod>2025</lastmod></url><url><loc><![CDATA[http://b/&]]></loc></url></urlset>";
        let found = read(text, LIMITS);
        assert_eq!((1, &b"http://a/?x&yhttp://b/&"[..]), (found.kind, &*found.arena));
        assert_eq!((vec![0, 13, 23], vec![1, 0]), (found.offsets, found.date_kinds));
        assert_eq!(Some(&0.7), found.priorities.first());
    }

    #[test]
    fn no_more_entries_are_taken_than_there_is_room_for() {
        let found = read(b"<urlset>", LIMITS);
        assert_eq!(vec![(0, String::new())], found.problems);
        let text = format!("<urlset>{}", "<url><loc>x</loc></url>".repeat(9));
        assert!(read(text.as_bytes(), LIMITS).dates.is_empty());
        assert_eq!(4, read(text.as_bytes(), LIMITS).offsets.len());
    }

    #[test]
    fn dates_are_those_of_w3c() {
        for good in ["2024", "2024-02", "2024-02-29T12:00Z", "2024-02-29 12:00:00.123+0100"] {
            assert!(is_date(good.as_bytes()), "{good}");
        }
        for bad in ["", "24", "2024-", "2024-02-29T12", "2024-02-29T12:00:00.", "Thu, 01 Feb 2024"]
        {
            assert!(!is_date(bad.as_bytes()), "{bad}");
        }
        assert!(share("0.5") == 0.5 && share("2").is_nan() && share(".").is_nan());
    }
}
