//! HTML cut into tags and text (WHATWG HTML 13.2.5) in one pass: no tree, no copy, nothing looked at twice.
//!
//! A tag or comment that the end of the text cuts off is no token, as the standard has it. A sink gets slices of the
//! text and says what follows a start tag; it decodes what it wants to keep (`references`).

use memchr::{memchr, memchr2};

use super::references::Place;
use crate::eight;

/// How the text behind a start tag is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Tags and text.
    Data,
    /// Text with references up to the end tag of the same name.
    Rcdata,
    /// Text up to the end tag of the same name.
    Rawtext,
    /// Text up to the end tag, but for one inside a comment that opens a script.
    Script,
    /// Text to the end.
    Plaintext,
}

/// An attribute as written.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'t> {
    /// In any case.
    pub name: &'t str,
    /// References are not decoded.
    pub value: &'t str,
}

/// The name of a tag.
#[derive(Clone, Copy, Debug)]
pub struct Name<'t> {
    /// In any case.
    pub written: &'t str,
    /// Its octets as `eight` has them; 0 where there are more than eight. Letters are in lower case, and no name has the
    /// number of another one that is letters and digits.
    pub number: u64,
}

/// Takes the tokens of a text in order.
pub trait Sink<'t> {
    /// How it knows an element.
    type Element: Copy;
    /// The element of this name, as the sink knows it.
    fn element(&self, name: Name<'t>) -> Self::Element;
    /// Text as written, `whole[from..to]`; several in a row may belong together.
    fn text(&mut self, whole: &'t str, from: usize, to: usize, place: Place);
    /// Whether the attributes of start tags of this element are wanted.
    fn wants(&self, element: Self::Element) -> bool;
    /// A start tag with the first of its attributes, doubles included; the first of a name counts.
    fn start(
        &mut self,
        element: Self::Element,
        name: &'t str,
        attributes: &[Attribute<'t>],
        closed: bool,
    ) -> Next;
    /// An end tag.
    fn end(&mut self, element: Self::Element, name: &'t str);
    /// Whether a CDATA section may begin here: inside svg or math.
    fn foreign(&self) -> bool;
}

/// Whether this is white space of HTML: tab, line feed, form feed, carriage return, blank.
#[must_use]
pub const fn is_space(octet: u8) -> bool {
    matches!(octet, b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

/// Cuts `text` into tokens. `next` and `name` say how it begins, as behind a start tag of that name. Of a start tag no
/// more than `attributes_max` attributes are handed over.
pub fn tokenize<'t>(
    text: &'t str,
    next: Next,
    name: &'t str,
    attributes_max: usize,
    sink: &mut impl Sink<'t>,
) {
    let mut reading =
        Reading { text, octets: text.as_bytes(), at: 0, attributes: Vec::new(), attributes_max };
    let mut state = (next, name);
    while reading.at < text.len() {
        state = match state.0 {
            Next::Data => reading.data(sink),
            Next::Plaintext => {
                sink.text(text, reading.at, text.len(), Place::Raw);
                return;
            }
            _ => reading.element(state.0, state.1, sink),
        };
    }
}

/// Letters, and all that ends a name stands below them.
const LETTERS: u8 = b'A';
/// The bit of letters in lower case, for eight octets. Other octets that have it then become neither letter nor digit, but
/// for control characters.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// Whether an octet ends the name of a tag.
const fn ends_name(octet: u8) -> bool {
    is_space(octet) || matches!(octet, b'/' | b'>')
}

struct Reading<'t> {
    text: &'t str,
    octets: &'t [u8],
    at: usize,
    attributes: Vec<Attribute<'t>>,
    attributes_max: usize,
}

impl<'t> Reading<'t> {
    /// Reads up to and with the next start tag after which text is read otherwise.
    fn data(&mut self, sink: &mut impl Sink<'t>) -> (Next, &'t str) {
        let mut start = self.at;
        let mut look = self.at;
        loop {
            let Some(open) = eight::find(b'<', self.octets, look) else {
                self.flush(start, self.octets.len(), Place::Data, sink);
                self.at = self.octets.len();
                return (Next::Data, "");
            };
            match self.octets.get(open + 1) {
                Some(octet) if octet.is_ascii_alphabetic() => {
                    self.flush(start, open, Place::Data, sink);
                    let name = self.name(open + 1);
                    let element = sink.element(name);
                    let name = name.written;
                    let Some(closed) = self.tag(open + 1 + name.len(), sink.wants(element)) else {
                        return (Next::Data, "");
                    };
                    let next = sink.start(element, name, &self.attributes, closed);
                    if next != Next::Data {
                        return (next, name);
                    }
                }
                Some(b'/') => match self.octets.get(open + 2) {
                    Some(octet) if octet.is_ascii_alphabetic() => {
                        self.flush(start, open, Place::Data, sink);
                        let name = self.name(open + 2);
                        if self.tag(open + 2 + name.written.len(), false).is_none() {
                            return (Next::Data, "");
                        }
                        sink.end(sink.element(name), name.written);
                    }
                    None => {
                        self.flush(start, self.octets.len(), Place::Data, sink);
                        self.at = self.octets.len();
                        return (Next::Data, "");
                    }
                    Some(b'>') => {
                        self.flush(start, open, Place::Data, sink);
                        self.at = open + 3;
                    }
                    Some(_) => {
                        self.flush(start, open, Place::Data, sink);
                        self.skip_to_angle(open + 2);
                    }
                },
                Some(b'!') => {
                    self.flush(start, open, Place::Data, sink);
                    self.declaration(open + 2, sink);
                }
                Some(b'?') => {
                    self.flush(start, open, Place::Data, sink);
                    self.skip_to_angle(open + 1);
                }
                _ => {
                    look = open + 1;
                    continue;
                }
            }
            start = self.at;
            look = self.at;
        }
    }

    fn flush(&self, start: usize, end: usize, place: Place, sink: &mut impl Sink<'t>) {
        if start < end {
            sink.text(self.text, start, end, place);
        }
    }

    fn skip_to_angle(&mut self, from: usize) {
        self.at =
            memchr(b'>', &self.octets[from..]).map_or(self.octets.len(), |found| from + found + 1);
    }

    /// Behind "<!": a comment, a CDATA section where there may be one, a doctype, or what is passed over like one.
    fn declaration(&mut self, from: usize, sink: &mut impl Sink<'t>) {
        let rest = &self.octets[from..];
        if rest.starts_with(b"--") {
            self.at = self.comment_end(from + 2);
        } else if rest.starts_with(b"[CDATA[") && sink.foreign() {
            self.cdata(from + 7, sink);
        } else {
            self.skip_to_angle(from);
        }
    }

    fn cdata(&mut self, from: usize, sink: &mut impl Sink<'t>) {
        let found = memchr::memmem::find(&self.octets[from..], b"]]>");
        let end = found.map_or(self.octets.len(), |found| from + found);
        self.flush(from, end, Place::Cdata, sink);
        self.at = (end + 3).min(self.octets.len());
    }

    fn comment_end(&self, from: usize) -> usize {
        let octets = self.octets;
        let rest = &octets[from..];
        if rest.starts_with(b">") {
            return from + 1;
        }
        if rest.starts_with(b"->") {
            return from + 2;
        }
        let mut at = from;
        while let Some(found) = memchr(b'-', &octets[at..]) {
            at += found;
            if octets.get(at + 1) != Some(&b'-') {
                at += 1;
                continue;
            }
            at += 2;
            while octets.get(at) == Some(&b'-') {
                at += 1;
            }
            match octets.get(at) {
                Some(b'>') => return at + 1,
                Some(b'!') if octets.get(at + 1) == Some(&b'>') => return at + 2,
                Some(b'!') => at += 1,
                Some(_) => {}
                None => break,
            }
        }
        octets.len()
    }

    #[inline]
    fn name(&self, from: usize) -> Name<'t> {
        if let Some(eight) = eight::at(self.octets, from) {
            let mut marks = eight::below(eight, LETTERS);
            while marks != 0 {
                let size = eight::first(marks);
                let octet = self.octets[from + size];
                if ends_name(octet) {
                    let number = eight::front(eight | LOWER, size);
                    return Name { written: &self.text[from..from + size], number };
                }
                if !octet.is_ascii_digit() {
                    break;
                }
                marks &= marks - 1;
            }
        }
        self.any_name(from)
    }

    /// A name that is long, or has more than letters and digits.
    #[cold]
    fn any_name(&self, from: usize) -> Name<'t> {
        let rest = &self.octets[from..];
        let size = rest.iter().position(|octet| ends_name(*octet)).unwrap_or(rest.len());
        let mut room = [0; 8];
        if let Some(room) = room.get_mut(..size) {
            room.copy_from_slice(&rest[..size]);
            room.make_ascii_lowercase();
        }
        Name { written: &self.text[from..from + size], number: u64::from_le_bytes(room) }
    }

    /// Reads attributes from behind a name, and whether the tag is closed in place; None when the text ends in the tag.
    /// `at` stands behind the tag then.
    #[inline]
    fn tag(&mut self, from: usize, wanted: bool) -> Option<bool> {
        self.attributes.clear();
        if self.octets.get(from) == Some(&b'>') {
            self.at = from + 1;
            return Some(false);
        }
        self.at = self.octets.len();
        self.attributes(from, wanted)
    }

    fn attributes(&mut self, from: usize, wanted: bool) -> Option<bool> {
        let octets = self.octets;
        let mut at = from;
        loop {
            match *octets.get(at)? {
                b'>' => {
                    self.at = at + 1;
                    return Some(false);
                }
                b'/' if octets.get(at + 1) == Some(&b'>') => {
                    self.at = at + 2;
                    return Some(true);
                }
                b'/' => at += 1,
                octet if is_space(octet) => at += 1,
                _ => {
                    let begin = at;
                    // An equals sign in front belongs to the name.
                    let end = self.attribute_end(at + 1)?;
                    let mut value = (end, end);
                    at = self.behind_spaces(end)?;
                    if octets[at] == b'=' {
                        at = self.behind_spaces(at + 1)?;
                        value = match octets[at] {
                            quote @ (b'"' | b'\'') => (at + 1, eight::find(quote, octets, at + 1)?),
                            b'>' => (at, at),
                            _ => {
                                let ends = |octet: &u8| is_space(*octet) || *octet == b'>';
                                (at, at + octets[at..].iter().position(ends)?)
                            }
                        };
                        at = value.1 + usize::from(value.0 > at);
                    }
                    if wanted && self.attributes.len() < self.attributes_max {
                        let (name, value) = (&self.text[begin..end], &self.text[value.0..value.1]);
                        self.attributes.push(Attribute { name, value });
                    }
                }
            }
        }
    }

    /// Where the name of an attribute ends.
    #[inline]
    fn attribute_end(&self, from: usize) -> Option<usize> {
        let ends = |octet: u8| ends_name(octet) || octet == b'=';
        let mut at = from;
        while let Some(eight) = eight::at(self.octets, at) {
            let mut marks = eight::below(eight, LETTERS);
            while marks != 0 {
                let found = at + eight::first(marks);
                if ends(self.octets[found]) {
                    return Some(found);
                }
                marks &= marks - 1;
            }
            at += 8;
        }
        self.octets.get(at..)?.iter().position(|octet| ends(*octet)).map(|more| at + more)
    }

    #[inline]
    fn behind_spaces(&self, from: usize) -> Option<usize> {
        let mut at = from;
        while is_space(*self.octets.get(at)?) {
            at += 1;
        }
        Some(at)
    }

    /// Reads the text of an element that holds no tags, and its end tag.
    fn element(&mut self, next: Next, name: &'t str, sink: &mut impl Sink<'t>) -> (Next, &'t str) {
        let place = if next == Next::Rcdata { Place::Rcdata } else { Place::Raw };
        let start = self.at;
        let end = if next == Next::Script {
            self.script_end(start, name)
        } else {
            self.text_end(start, name)
        };
        self.flush(start, end, place, sink);
        self.at = end;
        if end < self.octets.len() {
            let found = self.name(end + 2);
            if self.tag(end + 2 + found.written.len(), false).is_some() {
                sink.end(sink.element(found), found.written);
            }
        }
        (Next::Data, "")
    }

    /// Where the end tag of this name begins, or the end of the text.
    fn text_end(&self, from: usize, name: &str) -> usize {
        let mut at = from;
        while let Some(found) = memchr(b'<', &self.octets[at..]) {
            at += found;
            if self.ends_here(at, name) {
                return at;
            }
            at += 1;
        }
        self.octets.len()
    }

    fn ends_here(&self, open: usize, name: &str) -> bool {
        let rest = &self.octets[open + 1..];
        let width = name.len() + 1;
        !name.is_empty()
            && rest.first() == Some(&b'/')
            && rest.len() > width
            && rest[1..width].eq_ignore_ascii_case(name.as_bytes())
            && (is_space(rest[width]) || matches!(rest[width], b'/' | b'>'))
    }

    /// The same of a script: a comment in it hides end tags once another script was opened there.
    fn script_end(&self, from: usize, name: &str) -> usize {
        let octets = self.octets;
        let mut at = from;
        'plain: loop {
            let Some(found) = memchr(b'<', &octets[at..]) else { return octets.len() };
            at += found;
            if self.ends_here(at, name) {
                return at;
            }
            if !octets[at + 1..].starts_with(b"!--") {
                at += 1;
                continue;
            }
            at += 4;
            let mut dashes = 2;
            let mut doubled = false;
            loop {
                // The next octet that matters; any other in between breaks a run of dashes.
                let found = if dashes >= 2 && octets.get(at) == Some(&b'>') {
                    at += 1;
                    continue 'plain;
                } else {
                    memchr2(b'<', b'-', &octets[at..])
                };
                let Some(found) = found else { return octets.len() };
                if found > 0 {
                    dashes = 0;
                }
                at += found;
                if octets[at] == b'-' {
                    dashes += 1;
                    at += 1;
                    continue;
                }
                dashes = 0;
                if !doubled && self.ends_here(at, name) {
                    return at;
                }
                at += 1;
                if doubled {
                    if octets.get(at) != Some(&b'/') {
                        continue;
                    }
                    at += 1;
                }
                let letters = octets[at..].iter().position(|octet| !octet.is_ascii_alphabetic());
                let Some(letters) = letters else { return octets.len() };
                let parted =
                    is_space(octets[at + letters]) || matches!(octets[at + letters], b'/' | b'>');
                if parted && octets[at..at + letters].eq_ignore_ascii_case(b"script") {
                    doubled = !doubled;
                }
                at += letters;
                if parted && letters > 0 {
                    at += 1; // it belongs to what was read: no ">" behind dashes
                }
            }
        }
    }
}
