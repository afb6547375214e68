//! HTML cut into tags and text (WHATWG HTML 13.2.5) in one pass: no tree, no copy, nothing looked at twice.
//!
//! A tag or comment that the end of the text cuts off is no token, as the standard has it. A sink gets slices of the
//! text and says what follows a start tag; it decodes what it wants to keep (`references`).

use memchr::{memchr, memchr2};

use super::references::Place;

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

/// Takes the tokens of a text in order.
pub trait Sink<'t> {
    /// Text as written; several in a row may belong together.
    fn text(&mut self, raw: &'t str, place: Place);
    /// Whether the attributes of this start tag (its name as written) are wanted.
    fn wants(&mut self, name: &'t str) -> bool;
    /// A start tag with the first of its attributes, doubles included; the first of a name counts.
    fn start(&mut self, name: &'t str, attributes: &[Attribute<'t>], closed: bool) -> Next;
    /// An end tag.
    fn end(&mut self, name: &'t str);
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
                sink.text(&text[reading.at..], Place::Raw);
                return;
            }
            _ => reading.element(state.0, state.1, sink),
        };
    }
}

struct Reading<'t> {
    text: &'t str,
    octets: &'t [u8],
    at: usize,
    attributes: Vec<Attribute<'t>>,
    attributes_max: usize,
}

/// What ended the scan of a tag.
struct Tag<'t> {
    name: &'t str,
    closed: bool,
}

impl<'t> Reading<'t> {
    /// Reads up to and with the next start tag after which text is read otherwise.
    fn data(&mut self, sink: &mut impl Sink<'t>) -> (Next, &'t str) {
        let mut start = self.at;
        let mut look = self.at;
        loop {
            let Some(found) = memchr(b'<', &self.octets[look..]) else {
                self.flush(start, self.octets.len(), Place::Data, sink);
                self.at = self.octets.len();
                return (Next::Data, "");
            };
            let open = look + found;
            match self.octets.get(open + 1) {
                Some(octet) if octet.is_ascii_alphabetic() => {
                    self.flush(start, open, Place::Data, sink);
                    let name = self.name(open + 1);
                    let wanted = sink.wants(name);
                    let Some(tag) = self.tag(open + 1, name, wanted) else {
                        return (Next::Data, "");
                    };
                    let next = sink.start(tag.name, &self.attributes, tag.closed);
                    if next != Next::Data {
                        return (next, tag.name);
                    }
                }
                Some(b'/') => match self.octets.get(open + 2) {
                    Some(octet) if octet.is_ascii_alphabetic() => {
                        self.flush(start, open, Place::Data, sink);
                        let name = self.name(open + 2);
                        let Some(tag) = self.tag(open + 2, name, false) else {
                            return (Next::Data, "");
                        };
                        sink.end(tag.name);
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
            sink.text(&self.text[start..end], place);
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

    fn name(&self, from: usize) -> &'t str {
        let rest = &self.octets[from..];
        let ends = |octet: &u8| is_space(*octet) || matches!(octet, b'/' | b'>');
        &self.text[from..from + rest.iter().position(ends).unwrap_or(rest.len())]
    }

    /// Reads the attributes behind a name; None when the text ends in the tag. `at` stands behind the tag then.
    fn tag(&mut self, from: usize, name: &'t str, wanted: bool) -> Option<Tag<'t>> {
        let octets = self.octets;
        self.attributes.clear();
        let mut at = from + name.len();
        self.at = octets.len();
        loop {
            at += octets[at..].iter().position(|octet| !is_space(*octet))?;
            match octets[at] {
                b'>' => {
                    self.at = at + 1;
                    return Some(Tag { name, closed: false });
                }
                b'/' => {
                    if octets.get(at + 1) == Some(&b'>') {
                        self.at = at + 2;
                        return Some(Tag { name, closed: true });
                    }
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let begin = at;
            // An equals sign in front belongs to the name.
            let ends = |octet: &u8| is_space(*octet) || matches!(octet, b'/' | b'>' | b'=');
            at += 1;
            at += octets[at..].iter().position(ends)?;
            let attribute = &self.text[begin..at];
            at += octets[at..].iter().position(|octet| !is_space(*octet))?;
            let mut value = "";
            if octets[at] == b'=' {
                at += 1;
                at += octets[at..].iter().position(|octet| !is_space(*octet))?;
                match octets[at] {
                    quote @ (b'"' | b'\'') => {
                        let end = at + 1 + memchr(quote, &octets[at + 1..])?;
                        value = &self.text[at + 1..end];
                        at = end + 1;
                    }
                    b'>' => {}
                    _ => {
                        let ends = |octet: &u8| is_space(*octet) || *octet == b'>';
                        let end = at + octets[at..].iter().position(ends)?;
                        value = &self.text[at..end];
                        at = end;
                    }
                }
            }
            if wanted && self.attributes.len() < self.attributes_max {
                self.attributes.push(Attribute { name: attribute, value });
            }
        }
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
            if self.tag(end + 2, found, false).is_some() {
                sink.end(found);
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
