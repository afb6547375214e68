//! The lines of a robots.txt, and the rules of one agent matched against URLs.
//!
//! What counts as a record, how both sides of a comparison are spelled, and how the lenient reading differs is written at
//! the plain twin, `src/outrider/kernels/robots.py`. A set of rules is three sorted lists over one arena of patterns:
//!
//!   prefixes   patterns without a wildcard within; each knows the longest other prefix that it begins with, and the best
//!              rule among itself and those: the longest that fits a URL decides for all
//!   whole      patterns that a URL must equal ("$" and no wildcard)
//!   globs      patterns with a wildcard within, the strongest first; the first that matches ends the search
//!
//! The Content-Usage lines of an agent are one list, the strongest first: of equal ones every line counts.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// Octets of a line that are read: where Google's parser cuts.
pub const LINE_OCTETS_MAX: usize = 16_664;

const STAR: u8 = 0;
const NO_PARENT: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Agent,
    Allow,
    Disallow,
    Delay,
    Sitemap,
    Usage,
    Signal,
    Rate,
    Visit,
    Other,
}

const FIELDS: [(&[u8], Field); 23] = [
    (b"user-agent", Field::Agent),
    (b"useragent", Field::Agent),
    (b"user agent", Field::Agent),
    (b"allow", Field::Allow),
    (b"disallow", Field::Disallow),
    (b"dissallow", Field::Disallow),
    (b"dissalow", Field::Disallow),
    (b"disalow", Field::Disallow),
    (b"diasllow", Field::Disallow),
    (b"disallaw", Field::Disallow),
    (b"crawl-delay", Field::Delay),
    (b"crawldelay", Field::Delay),
    (b"crawl delay", Field::Delay),
    (b"sitemap", Field::Sitemap),
    (b"sitemaps", Field::Sitemap),
    (b"site-map", Field::Sitemap),
    (b"request-rate", Field::Rate),
    (b"request rate", Field::Rate),
    (b"visit-time", Field::Visit),
    (b"visit time", Field::Visit),
    (b"noindex", Field::Other),
    (b"content-usage", Field::Usage),
    (b"content-signal", Field::Signal),
];

/// The field of a name whose lines `Text::remarks` gives.
fn remarked(name: &str) -> Option<Field> {
    match name {
        "content-usage" => Some(Field::Usage),
        "content-signal" => Some(Field::Signal),
        "request-rate" => Some(Field::Rate),
        "visit-time" => Some(Field::Visit),
        _ => None,
    }
}

const FIELD_OCTETS_MAX: usize = 14;

struct Rule {
    line: u32,
    start: u32,
    length: u32,
    allow: bool,
}

struct Group {
    first: usize,
    end: usize,
    delay: Option<f64>,
}

/// A line of a group with another field than Allow and Disallow.
struct Remark {
    group: u32,
    field: Field,
    line: u32,
    start: u32,
    length: u32,
}

/// The records of one robots.txt.
pub struct Text {
    text: Vec<u8>,
    lenient: bool,
    rules: Vec<Rule>,
    groups: Vec<Group>,
    remarks: Vec<Remark>,
    tokens: HashMap<Vec<u8>, Vec<u32>>,
    sitemaps: Vec<(usize, usize)>,
    records: usize,
    lines: usize,
}

impl Text {
    /// Reads a text without byte order mark and NUL.
    #[must_use]
    pub fn of(text: Vec<u8>, lenient: bool) -> Self {
        let mut read = Self {
            text: Vec::new(),
            lenient,
            rules: Vec::new(),
            groups: vec![Group { first: 0, end: 0, delay: None }],
            remarks: Vec::new(),
            tokens: HashMap::new(),
            sitemaps: Vec::new(),
            records: 0,
            lines: 0,
        };
        let mut agents_go_on = false;
        for line in Lines::of(&text) {
            read.lines += 1;
            let (start, end) = stripped(&text, line.0, line.1);
            let Some((field, from)) = record(&text[start..end]) else { continue };
            read.records += 1;
            let value = (start + from, end);
            match field {
                Field::Agent => {
                    if !agents_go_on {
                        let first = read.rules.len();
                        read.groups.push(Group { first, end: first, delay: None });
                    }
                    agents_go_on = true;
                    read.name(&text[value.0..value.1]);
                }
                Field::Allow | Field::Disallow => {
                    agents_go_on = false;
                    if value.0 < value.1 {
                        read.rules.push(Rule {
                            line: read.lines as u32,
                            start: value.0 as u32,
                            length: (value.1 - value.0) as u32,
                            allow: field == Field::Allow,
                        });
                        read.last_group().end += 1;
                    }
                }
                Field::Sitemap => {
                    if value.0 < value.1 {
                        read.sitemaps.push(value);
                    }
                }
                Field::Delay => {
                    if let Some(delay) = seconds(&text[value.0..value.1]) {
                        let group = read.last_group();
                        group.delay = Some(group.delay.map_or(delay, |known| known.max(delay)));
                    }
                }
                Field::Usage | Field::Signal | Field::Rate | Field::Visit => {
                    if matches!(field, Field::Usage | Field::Signal) {
                        agents_go_on = agents_go_on && lenient;
                    }
                    read.remarks.push(Remark {
                        group: (read.groups.len() - 1) as u32,
                        field,
                        line: read.lines as u32,
                        start: value.0 as u32,
                        length: (value.1 - value.0) as u32,
                    });
                }
                Field::Other => {}
            }
        }
        read.text = text;
        read
    }

    fn last_group(&mut self) -> &mut Group {
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Notes that an agent line names a token: "FooBot" of "FooBot 1.0".
    fn name(&mut self, value: &[u8]) {
        let letter = |octet: &&u8| octet.is_ascii_alphanumeric() || matches!(**octet, b'-' | b'_');
        let mut token: Vec<u8> =
            value.iter().take_while(letter).map(u8::to_ascii_lowercase).collect();
        if token.is_empty() {
            if value.first() != Some(&b'*') || !matches!(value.get(1), None | Some(b' ' | b'\t')) {
                return;
            }
            token.push(b'*');
        }
        let group = (self.groups.len() - 1) as u32;
        let groups = self.tokens.entry(token).or_default();
        if groups.last() != Some(&group) {
            groups.push(group);
        }
    }

    /// The number of lines that are records.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// The number of product tokens that have a group.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.tokens.len()
    }

    /// Whether a group names this product token, given in lower case.
    #[must_use]
    pub fn has(&self, token: &[u8]) -> bool {
        self.tokens.contains_key(token)
    }

    fn groups_of(&self, token: &[u8]) -> impl Iterator<Item = &Group> {
        self.tokens.get(token).into_iter().flatten().map(|&group| &self.groups[group as usize])
    }

    /// The largest Crawl-delay of a token's groups in seconds.
    #[must_use]
    pub fn delay(&self, token: &[u8]) -> Option<f64> {
        self.groups_of(token).filter_map(|group| group.delay).reduce(f64::max)
    }

    fn remarks_of(&self, token: &[u8], field: Field) -> impl Iterator<Item = &Remark> {
        let groups: &[u32] = self.tokens.get(token).map_or(&[], Vec::as_slice);
        self.remarks.iter().filter(move |remark| {
            // A Content-Signal line before the first agent is about the whole file.
            remark.field == field
                && (groups.binary_search(&remark.group).is_ok()
                    || (remark.group == 0 && field == Field::Signal))
        })
    }

    /// Returns the first lines of one field that count for a token, `lines_max` at most, each with its number and value.
    /// An unknown field gives an empty list.
    #[must_use]
    pub fn remarks(&self, token: &[u8], name: &str, lines_max: usize) -> Vec<(u32, &[u8])> {
        let Some(field) = remarked(name) else { return Vec::new() };
        let found = self.remarks_of(token, field).take(lines_max);
        found.map(|remark| (remark.line, self.value(remark))).collect()
    }

    fn value(&self, remark: &Remark) -> &[u8] {
        &self.text[remark.start as usize..][..remark.length as usize]
    }

    /// Returns the first Content-Usage lines that count for a token, `lines_max` at most.
    #[must_use]
    pub fn usages(&self, token: &[u8], lines_max: usize) -> Usages {
        let mut found = Usages { arena: Vec::new(), patterns: Vec::new(), lenient: self.lenient };
        for remark in self.remarks_of(token, Field::Usage).take(lines_max) {
            let value = self.value(remark);
            let end = value.iter().position(|octet| matches!(octet, b' ' | b'\t'));
            let path = match value.first() {
                Some(b'/') => &value[..end.unwrap_or(value.len())],
                _ => &[],
            };
            let anchored = path.last() == Some(&b'$');
            let raw = &path[..path.len() - usize::from(anchored)];
            let start = found.arena.len();
            let (octets, anchored) = spell_pattern(raw, anchored, self.lenient, &mut found.arena);
            let (end, line) = (found.arena.len(), remark.line);
            found.patterns.push(Pattern { start, end, octets, line, allow: false, anchored });
        }
        found.patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.octets));
        found.arena.shrink_to_fit();
        found.patterns.shrink_to_fit();
        found
    }

    /// The values of the sitemap lines, in order.
    pub fn sitemaps(&self) -> impl Iterator<Item = &[u8]> {
        self.sitemaps.iter().map(|&(start, end)| &self.text[start..end])
    }

    /// The number of lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// A line by its number from 1, without its comment and the blanks around it.
    #[must_use]
    pub fn line(&self, number: usize) -> Option<&[u8]> {
        let (start, end) = Lines::of(&self.text).nth(number.checked_sub(1)?)?;
        let (start, end) = stripped(&self.text, start, end);
        Some(&self.text[start..end])
    }

    /// The rules of a token's groups, merged, with so many globs at most.
    #[must_use]
    pub fn rules(&self, token: &[u8], globs_max: usize) -> Rules {
        let mut making = Making::default();
        for group in self.groups_of(token) {
            for rule in &self.rules[group.first..group.end] {
                let value = &self.text[rule.start as usize..][..rule.length as usize];
                making.add(value, rule.allow, rule.line, self.lenient, globs_max);
            }
        }
        making.made(self.lenient)
    }
}

/// The lines of a text as ranges; CR, LF and both end one.
struct Lines<'text> {
    text: &'text [u8],
    at: usize,
    ended: bool,
}

impl<'text> Lines<'text> {
    fn of(text: &'text [u8]) -> Self {
        Self { text, at: 0, ended: false }
    }
}

impl Iterator for Lines<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.ended {
            return None;
        }
        let start = self.at;
        let rest = &self.text[start..];
        let Some(length) = rest.iter().position(|&octet| octet == b'\n' || octet == b'\r') else {
            self.ended = true;
            return Some((start, self.text.len()));
        };
        let both = rest[length] == b'\r' && rest.get(length + 1) == Some(&b'\n');
        self.at = start + length + if both { 2 } else { 1 };
        Some((start, start + length))
    }
}

fn blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | 0x0b | 0x0c)
}

/// A line without its comment and the blanks around it.
fn stripped(text: &[u8], start: usize, end: usize) -> (usize, usize) {
    let end = end.min(start + LINE_OCTETS_MAX);
    let line = &text[start..end];
    let line = &line[..line.iter().position(|&octet| octet == b'#').unwrap_or(line.len())];
    let front = line.iter().position(|&octet| !blank(octet)).unwrap_or(line.len());
    let back = line.iter().rposition(|&octet| !blank(octet)).map_or(front, |at| at + 1);
    (start + front, start + back)
}

fn field_of(name: &[u8]) -> Option<Field> {
    FIELDS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|&(_, field)| field)
}

/// The field of a line and where its value begins, at the line's end if it is empty.
fn record(line: &[u8]) -> Option<(Field, usize)> {
    let value_from = |from: usize| {
        from + line[from..].iter().position(|&octet| !blank(octet)).unwrap_or(line.len() - from)
    };
    if let Some(colon) = line.iter().position(|&octet| octet == b':') {
        let mut name = [0_u8; FIELD_OCTETS_MAX + 1];
        let mut length = 0;
        let mut gap = false;
        for &octet in &line[..colon] {
            if blank(octet) {
                gap = length > 0;
                continue;
            }
            for octet in [b' ', octet].into_iter().skip(usize::from(!gap)) {
                if length < name.len() {
                    name[length] = octet;
                }
                length += 1;
            }
            gap = false;
            if length > FIELD_OCTETS_MAX {
                break;
            }
        }
        if length <= FIELD_OCTETS_MAX {
            if let Some(field) = field_of(&name[..length]) {
                return Some((field, value_from(colon + 1)));
            }
        }
    }
    // A missing colon is forgiven where the field is known.
    let space = |octet: &u8| matches!(octet, b' ' | b'\t');
    let one = line.iter().take(FIELD_OCTETS_MAX + 1).position(space)?;
    if let Some(field) = field_of(&line[..one]) {
        return Some((field, value_from(one)));
    }
    let rest = line[one + 1..].iter().take(FIELD_OCTETS_MAX + 1);
    let two = one + 1 + rest.clone().position(space)?;
    let mut name = line[..two].to_vec();
    name[one] = b' ';
    field_of(&name).map(|field| (field, value_from(two)))
}

/// Seconds at the front of a value: up to twelve digits, and as many behind a point or comma.
fn seconds(value: &[u8]) -> Option<f64> {
    let digits =
        |octets: &[u8]| octets.iter().take(12).take_while(|octet| octet.is_ascii_digit()).count();
    let whole = digits(value);
    let part = match value.get(whole) {
        Some(b'.' | b',') => digits(&value[whole + 1..]),
        _ => 0,
    };
    if whole == 0 && part == 0 {
        return None;
    }
    let mut number = String::from("0");
    number.extend(value[..whole].iter().map(|&octet| octet as char));
    number.push('.');
    number.extend(value[whole..].iter().skip(1).take(part).map(|&octet| octet as char));
    number.push('0');
    number.parse().ok()
}

fn unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.' | b'~')
}

fn reserved(octet: u8) -> bool {
    matches!(
        octet,
        b':' | b'@' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'[' | b']'
    )
}

fn hex(octet: u8) -> Option<u8> {
    (octet as char).to_digit(16).map(|digit| digit as u8)
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Writes the octet at this place as it is compared; gives how many octets it takes there, and its weight.
fn spell(
    raw: &[u8],
    at: usize,
    lenient: bool,
    in_query: bool,
    into: &mut Vec<u8>,
) -> (usize, usize) {
    let octet = raw[at];
    let escaped = |code: u8, into: &mut Vec<u8>| {
        into.extend([b'%', DIGITS[usize::from(code >> 4)], DIGITS[usize::from(code & 15)]]);
    };
    if octet == b'%' && raw.len() >= at + 3 {
        if let (Some(high), Some(low)) = (hex(raw[at + 1]), hex(raw[at + 2])) {
            let code = high << 4 | low;
            let plain =
                unreserved(code) || reserved(code) || (in_query && matches!(code, b'/' | b'?'));
            if plain && !lenient {
                into.push(code);
                return (3, if unreserved(code) { 1 } else { 3 });
            }
            escaped(code, into);
            return (3, 3);
        }
    }
    let plain = if lenient {
        (0x21..=0x7e).contains(&octet)
    } else {
        unreserved(octet)
            || reserved(octet)
            || matches!(octet, b'/' | b'?' | b'#' | b'&' | b'=' | b'%')
    };
    if plain {
        into.push(octet);
        return (1, 1);
    }
    escaped(octet, into);
    (1, 3)
}

struct Pattern {
    start: usize,
    end: usize,
    octets: u32,
    line: u32,
    allow: bool,
    anchored: bool,
}

/// Writes a pattern as it is compared; gives its octets, and whether a URL must end where it ends.
fn spell_pattern(raw: &[u8], anchored: bool, lenient: bool, into: &mut Vec<u8>) -> (u32, bool) {
    let start = into.len();
    let mut octets = usize::from(anchored);
    let mut in_query = false;
    let mut at = 0;
    while at < raw.len() {
        if raw[at] == b'*' {
            if into.len() == start || into.last() != Some(&STAR) {
                into.push(STAR);
            }
            octets += 1;
            at += 1;
            continue;
        }
        let (taken, weight) = spell(raw, at, lenient, in_query, into);
        in_query |= raw[at] == b'?';
        octets += weight;
        at += taken;
    }
    if into.len() > start && into.last() == Some(&STAR) {
        into.pop(); // a wildcard at the end says what the end says
        return (octets as u32, false);
    }
    (octets as u32, anchored)
}

/// Rules that are being gathered: their patterns lie in one arena.
#[derive(Default)]
struct Making {
    arena: Vec<u8>,
    patterns: Vec<Pattern>,
    globs: HashSet<(Vec<u8>, bool, bool, u32)>,
}

impl Making {
    fn add(&mut self, value: &[u8], allow: bool, line: u32, lenient: bool, globs_max: usize) {
        let anchored = value.last() == Some(&b'$');
        let raw = &value[..value.len() - usize::from(anchored)];
        self.add_pattern(raw, anchored, allow, line, lenient, globs_max);
        if !allow {
            return;
        }
        if let Some(last) = raw.iter().rposition(|&octet| octet == b'/') {
            let page = &raw[last..];
            let index = b"/index.html";
            if page == index || (lenient && page.starts_with(&index[..10])) {
                self.add_pattern(&raw[..=last], true, true, line, lenient, globs_max);
            }
        }
    }

    fn add_pattern(
        &mut self,
        raw: &[u8],
        anchored: bool,
        allow: bool,
        line: u32,
        lenient: bool,
        globs_max: usize,
    ) {
        let start = self.arena.len();
        let (octets, anchored) = spell_pattern(raw, anchored, lenient, &mut self.arena);
        let mut rule = Pattern { start, end: self.arena.len(), octets, line, allow, anchored };
        if let Some(star) = self.arena[start..].iter().position(|&octet| octet == STAR) {
            let known = (self.arena[start..].to_vec(), anchored, allow, rule.octets);
            if self.globs.len() >= globs_max {
                if self.globs.contains(&known) || allow {
                    self.arena.truncate(start);
                    return;
                }
                self.arena.truncate(start + star);
                if star == 0 {
                    self.arena.push(b'/');
                }
                rule.end = self.arena.len();
                rule.octets = (rule.end - start) as u32;
                rule.anchored = false;
            } else if !self.globs.insert(known) {
                self.arena.truncate(start);
                return;
            }
        }
        self.patterns.push(rule);
    }

    fn made(self, lenient: bool) -> Rules {
        let Self { arena: gathered, patterns, .. } = self;
        let text = |pattern: &Pattern| &gathered[pattern.start..pattern.end];
        let is_glob = |pattern: &Pattern| text(pattern).contains(&STAR);
        let (mut globs, plain): (Vec<&Pattern>, Vec<&Pattern>) =
            patterns.iter().partition(|pattern| is_glob(pattern));
        globs.sort_by_key(|pattern| {
            (std::cmp::Reverse(pattern.octets), !pattern.allow, pattern.line)
        });
        let (mut whole, mut prefixes): (Vec<&Pattern>, Vec<&Pattern>) =
            plain.into_iter().partition(|pattern| pattern.anchored);
        let mut count = globs.len();
        for list in [&mut whole, &mut prefixes] {
            // Of one pattern the best rule stands first. Equal rules are one: their first line counts.
            list.sort_by(|one, other| {
                text(one).cmp(text(other)).then_with(|| {
                    (std::cmp::Reverse(one.octets), !one.allow, one.line).cmp(&(
                        std::cmp::Reverse(other.octets),
                        !other.allow,
                        other.line,
                    ))
                })
            });
            let rule = |pattern: &Pattern| (text(pattern), pattern.octets, pattern.allow);
            count += list.chunk_by(|one, other| rule(one) == rule(other)).count();
            list.dedup_by(|one, other| text(one) == text(other));
        }
        // Exactly as large as they will be: nothing is copied to shrink.
        let kinds = [&globs, &whole, &prefixes].into_iter().flatten();
        let mut kept = Rules {
            arena: Vec::with_capacity(kinds.map(|pattern| text(pattern).len()).sum()),
            prefixes: Vec::with_capacity(prefixes.len()),
            whole: Vec::with_capacity(whole.len()),
            globs: Vec::with_capacity(globs.len()),
            count,
            lenient,
        };
        for pattern in globs {
            let ruling = kept.keep(text(pattern), pattern);
            kept.globs.push(Glob { ruling, anchored: pattern.anchored });
        }
        for pattern in whole {
            let ruling = kept.keep(text(pattern), pattern);
            kept.whole.push(ruling);
        }
        let mut open: Vec<u32> = Vec::new();
        for pattern in prefixes {
            while let Some(&last) = open.last() {
                if text(pattern).starts_with(kept.text(&kept.prefixes[last as usize].ruling)) {
                    break;
                }
                open.pop();
            }
            let mut ruling = kept.keep(text(pattern), pattern);
            let parent = open.last().copied().unwrap_or(NO_PARENT);
            if parent != NO_PARENT {
                let above = kept.prefixes[parent as usize].ruling;
                if above.best() > ruling.best() {
                    ruling.verdict = above.verdict;
                    ruling.octets = above.octets;
                }
            }
            open.push(kept.prefixes.len() as u32);
            kept.prefixes.push(Prefix { ruling, parent });
        }
        kept
    }
}

/// The place of a pattern in the arena; the line that decides, negative where it forbids; and the octets of that rule.
#[derive(Clone, Copy)]
struct Ruling {
    start: u32,
    length: u16,
    octets: u16,
    verdict: i32,
}

impl Ruling {
    /// The larger, the better: most octets, "allow" among equals, the first line among those.
    fn best(&self) -> (u16, bool, std::cmp::Reverse<u32>) {
        (self.octets, self.verdict > 0, std::cmp::Reverse(self.verdict.unsigned_abs()))
    }
}

struct Prefix {
    ruling: Ruling,
    parent: u32,
}

struct Glob {
    ruling: Ruling,
    anchored: bool,
}

/// The rules of one agent.
pub struct Rules {
    arena: Vec<u8>,
    prefixes: Vec<Prefix>,
    whole: Vec<Ruling>,
    globs: Vec<Glob>,
    count: usize,
    lenient: bool,
}

impl Rules {
    /// The number of rules, equal ones counted once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes that the rules take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.arena.capacity()
            + self.prefixes.capacity() * size_of::<Prefix>()
            + self.whole.capacity() * size_of::<Ruling>()
            + self.globs.capacity() * size_of::<Glob>()
    }

    fn keep(&mut self, text: &[u8], pattern: &Pattern) -> Ruling {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(text);
        let line = pattern.line as i32;
        Ruling {
            start,
            // A line of 16,664 octets, each escaped, is 49,992.
            length: text.len() as u16,
            octets: pattern.octets as u16,
            verdict: if pattern.allow { line } else { -line },
        }
    }

    fn text(&self, ruling: &Ruling) -> &[u8] {
        &self.arena[ruling.start as usize..][..usize::from(ruling.length)]
    }

    /// The number of the line that decides about an absolute URL, negative where it forbids; 0 where none matches.
    #[must_use]
    pub fn verdict(&self, url: &[u8]) -> i64 {
        if self.is_empty() {
            return 0;
        }
        let [spelled, in_query] = spellings(path_of(url), self.lenient);
        if spelled == b"/robots.txt" {
            return 0;
        }
        let mut best = None;
        self.look(&spelled, &mut best);
        if !in_query.is_empty() {
            self.look(&in_query, &mut best);
        }
        best.map_or(0, |ruling| i64::from(ruling.verdict))
    }

    /// Takes the best rule that matches a path, if it is better than the best so far.
    fn look<'rules>(&'rules self, path: &[u8], best: &mut Option<&'rules Ruling>) {
        let mut take = |ruling: &'rules Ruling| {
            if best.is_none_or(|known| ruling.best() > known.best()) {
                *best = Some(ruling);
            }
        };
        if let Some(prefix) = self.longest_prefix(path) {
            take(&prefix.ruling);
        }
        if let Ok(at) = self.whole.binary_search_by(|ruling| self.text(ruling).cmp(path)) {
            take(&self.whole[at]);
        }
        for glob in &self.globs {
            if best.is_some_and(|known| known.best() >= glob.ruling.best()) {
                break;
            }
            if matches(self.text(&glob.ruling), glob.anchored, path) {
                *best = Some(&glob.ruling);
                break;
            }
        }
    }

    fn longest_prefix(&self, path: &[u8]) -> Option<&Prefix> {
        let behind = self
            .prefixes
            .partition_point(|prefix| self.text(&prefix.ruling).cmp(path) != Ordering::Greater);
        let mut prefix = self.prefixes.get(behind.checked_sub(1)?)?;
        let pattern = self.text(&prefix.ruling);
        let common = pattern.iter().zip(path).take_while(|(one, other)| one == other).count();
        while usize::from(prefix.ruling.length) > common {
            prefix = self.prefixes.get(prefix.parent as usize)?;
        }
        Some(prefix)
    }
}

/// The Content-Usage lines of one agent, the strongest path first.
pub struct Usages {
    arena: Vec<u8>,
    patterns: Vec<Pattern>,
    lenient: bool,
}

impl Usages {
    /// The number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The bytes that the lines take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.arena.capacity() + self.patterns.capacity() * size_of::<Pattern>()
    }

    /// The numbers of the lines whose path matches an absolute URL with the most octets, in order.
    #[must_use]
    pub fn lines(&self, url: &[u8]) -> Vec<u32> {
        if self.is_empty() {
            return Vec::new();
        }
        let [spelled, in_query] = spellings(path_of(url), self.lenient);
        let mut octets = None;
        let mut found = Vec::new();
        for pattern in &self.patterns {
            if octets.is_some_and(|most| pattern.octets < most) {
                break;
            }
            let text = &self.arena[pattern.start..pattern.end];
            if matches(text, pattern.anchored, &spelled)
                || (!in_query.is_empty() && matches(text, pattern.anchored, &in_query))
            {
                octets = Some(pattern.octets);
                found.push(pattern.line);
            }
        }
        found.sort_unstable();
        found
    }
}

/// A path as it is compared, and also in the spelling of its query, empty where that is the same.
fn spellings(path: &[u8], lenient: bool) -> [Vec<u8>; 2] {
    let mut spelled = Vec::with_capacity(path.len() + 1);
    spell_path(path, lenient, false, &mut spelled);
    let mut in_query = Vec::new();
    if !lenient && path.contains(&b'?') && path.contains(&b'%') {
        spell_path(path, false, true, &mut in_query);
        if in_query == spelled {
            in_query.clear();
        }
    }
    [spelled, in_query]
}

/// Whether a pattern matches from the path's first octet. Each part between wildcards is taken where it comes first;
/// `str::find` takes time linear in the path, whatever the pattern. Both are ASCII: other octets are escaped.
fn matches(pattern: &[u8], anchored: bool, path: &[u8]) -> bool {
    let (Ok(pattern), Ok(path)) = (std::str::from_utf8(pattern), std::str::from_utf8(path)) else {
        return false;
    };
    let mut parts = pattern.split(STAR as char);
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else { return !anchored || rest.is_empty() };
    let open = if anchored { None } else { Some(last) };
    for part in parts.chain(open) {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    !anchored || rest.ends_with(last)
}

/// The path and the query of an absolute URL, without a fragment; without its "/" where there is none.
fn path_of(url: &[u8]) -> &[u8] {
    let mut path = url;
    if let Some(mark) = url.windows(3).position(|three| three == b"://") {
        let scheme = &url[..mark];
        if scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|&octet| unreserved(octet) || octet == b'+')
        {
            let rest = &url[mark + 3..];
            let end = rest.iter().position(|octet| matches!(octet, b'/' | b'?' | b'#'));
            path = &rest[end.unwrap_or(rest.len())..];
        }
    }
    &path[..path.iter().position(|&octet| octet == b'#').unwrap_or(path.len())]
}

/// The octets that `spell` writes as they are wherever they stand: most of a path, copied in runs.
const KEPT: [bool; 256] = {
    let mut kept = [false; 256];
    let mut octet = 0;
    while octet < 128 {
        kept[octet] = (octet as u8).is_ascii_alphanumeric()
            || matches!(octet as u8, b'-' | b'_' | b'.' | b'~' | b'/' | b'&' | b'=');
        octet += 1;
    }
    kept
};

fn spell_path(path: &[u8], lenient: bool, decode_query: bool, into: &mut Vec<u8>) {
    if path.first() != Some(&b'/') {
        into.push(b'/');
    }
    let mut behind = false;
    let mut at = 0;
    while at < path.len() {
        let run = path[at..].iter().take_while(|&&octet| KEPT[usize::from(octet)]).count();
        into.extend_from_slice(&path[at..at + run]);
        at += run;
        if at == path.len() {
            return;
        }
        let (taken, _) = spell(path, at, lenient, behind && decode_query, into);
        behind |= path[at] == b'?';
        at += taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, path: &str) -> i64 {
        let text = Text::of(text.as_bytes().to_vec(), false);
        text.rules(b"*", 2_000).verdict(format!("http://a.example{path}").as_bytes())
    }

    #[test]
    fn the_longest_rule_decides_and_names_its_line() {
        let text = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/*/c$\n";
        assert_eq!([-2, 3, -4, 0], ["/ax", "/a/b", "/a/b/c", "/b"].map(|path| verdict(text, path)));
    }

    #[test]
    fn the_best_of_the_shorter_prefixes_counts_too() {
        let text = "User-agent: *\r\nDisallow: /a****\r\nAllow: /ab\r\n";
        assert_eq!([-2, -2, 0], ["/abc", "/a", "/b"].map(|path| verdict(text, path)));
    }

    #[test]
    fn rules_take_no_more_than_their_lists() {
        let text =
            Text::of(b"User-agent: *\nDisallow: /a\nDisallow: /a\nDisallow: /b$\n".to_vec(), false);
        let rules = text.rules(b"*", 9);
        assert_eq!(2, rules.len());
        assert_eq!(size_of::<Rules>() + 2 + 2 + 16 + 12, rules.memory_bytes());
    }
}
