//! A page as columns: links with kinds, rels and texts, base, title, metas, visible text.

use std::collections::{HashMap, HashSet};

use encoding_rs::Encoding;

use super::charset::{decoded, of_late_meta, text_of};
use super::query;
use super::references::{decode_into, Place};
use super::tokens::{is_space, tokenize, Attribute, Name, Next, Sink};
use crate::eight;

/// How much of a page is kept; the first ones each time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Links that lead on, and as many others. Behind the first ones a link is kept if it names another place than all
    /// before it; of places there are no more than so many.
    pub links: usize,
    /// Bytes of visible text.
    pub text_bytes: usize,
    /// Bytes of the text of one link.
    pub link_text_bytes: usize,
    /// Meta elements.
    pub metas: usize,
    /// Attributes of one tag.
    pub attributes: usize,
    /// Bytes of a title, and of a name, content, rel or other value that is kept.
    pub value_bytes: usize,
}

/// The kinds of links, by number: the names of their elements.
pub const KINDS: [&str; 10] =
    ["a", "area", "frame", "iframe", "meta", "link", "img", "script", "source", "form"];
const META: u8 = 4;
/// The first kinds lead to pages: up to `META`.
pub const LEADING: u8 = META + 1;
/// Bytes of markup for each link.
const BYTES_PER_LINK: usize = 256;
/// Bytes of a link's address.
const LINK_BYTES: usize = 32;
/// Bytes of markup for each byte of text.
const BYTES_PER_TEXT_BYTE: usize = 4;
/// Nesting of svg, math and HTML in them that is followed.
const FOREIGN_DEPTH_MAX: usize = 64;

/// The columns of links, but for their addresses.
#[derive(Debug, Default)]
pub struct Links {
    /// Of each link its number in `KINDS`.
    pub kinds: Vec<u8>,
    /// Of each link the number of its rel.
    pub rels: Vec<u32>,
    /// The rels, each once; the first is empty.
    pub rel_names: Vec<String>,
    /// The texts of links, in UTF-8.
    pub texts: Vec<u8>,
    /// Where the text of each begins.
    pub text_starts: Vec<u32>,
    /// Where it ends.
    pub text_ends: Vec<u32>,
    /// Of links with rel=alternate: row, hreflang, type.
    pub alternates: Vec<(u32, String, String)>,
}

/// The columns of a page.
#[derive(Debug, Default)]
pub struct Page {
    /// The name of the encoding, in lower case.
    pub charset: String,
    /// The addresses as written, one after the other, in UTF-8.
    pub arena: String,
    /// Where each begins, and where the last ends.
    pub offsets: Vec<i64>,
    /// The other columns of its links.
    pub links: Links,
    /// Names in lower case and contents of metas that have both.
    pub metas: Vec<(String, String)>,
    /// Seconds and address of the first meta refresh.
    pub refresh: Option<(u32, String)>,
    /// The href of the first base element that has one.
    pub base: Option<String>,
    /// The text of the first title.
    pub title: Option<String>,
    /// The lang of the html element, else of a meta.
    pub language: Option<String>,
    /// The visible text in UTF-8, words parted by one blank or line feed.
    pub text: Vec<u8>,
    /// Links behind the bounds that name places of their own.
    pub left_out: u64,
}

/// Reads a page whose transport named the encoding `label`. `xml`: it was sent as XHTML.
#[must_use]
pub fn read(body: &[u8], label: Option<&str>, xml: bool, bounds: Bounds) -> Page {
    let found = decoded(body, label, true, xml);
    let mut reader = Reader::new(&found.text, found.encoding, xml, bounds);
    tokenize(&found.text, Next::Data, "", bounds.attributes, &mut reader);
    let late = reader.late.filter(|late| !found.certain && *late != found.encoding);
    let Some(encoding) = late else { return reader.ended() };
    // A meta element behind the scanned part, or one that names another encoding than the first in it.
    let text = text_of(body, encoding);
    let mut reader = Reader::new(&text, encoding, xml, bounds);
    tokenize(&text, Next::Data, "", bounds.attributes, &mut reader);
    reader.ended()
}

/// `text` up to so many bytes, and no part of a character.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The front of a text in UTF-8, as `cut` has it.
fn cut_octets(text: &[u8], bytes_max: usize) -> &[u8] {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// An address without its fragment.
fn place_of(address: &str) -> &str {
    address.split_once('#').map_or(address, |(place, _)| place)
}

/// How the sink knows elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Link(u8),
    Base,
    Meta,
    Title,
    Html,
    Template,
    Style,
    Textarea,
    Xmp,
    Hidden,
    Plaintext,
    Svg,
    Math,
    Block,
    Cell,
    Other,
}

const NAME_BYTES_MAX: usize = 16;

fn lowered<'n>(name: &str, room: &'n mut [u8; NAME_BYTES_MAX]) -> Option<&'n [u8]> {
    let room = room.get_mut(..name.len())?;
    room.copy_from_slice(name.as_bytes());
    room.make_ascii_lowercase();
    Some(room)
}

/// The elements that are treated in a way of their own, by their names.
const ELEMENTS: [(&[u8], Element); 76] = [
    (b"a", Element::Link(0)),
    (b"area", Element::Link(1)),
    (b"frame", Element::Link(2)),
    (b"iframe", Element::Link(3)),
    (b"link", Element::Link(5)),
    (b"img", Element::Link(6)),
    (b"image", Element::Link(6)),
    (b"script", Element::Link(7)),
    (b"source", Element::Link(8)),
    (b"form", Element::Link(9)),
    (b"base", Element::Base),
    (b"meta", Element::Meta),
    (b"title", Element::Title),
    (b"html", Element::Html),
    (b"template", Element::Template),
    (b"style", Element::Style),
    (b"textarea", Element::Textarea),
    (b"xmp", Element::Xmp),
    (b"noembed", Element::Hidden),
    (b"noframes", Element::Hidden),
    (b"plaintext", Element::Plaintext),
    (b"svg", Element::Svg),
    (b"math", Element::Math),
    (b"td", Element::Cell),
    (b"th", Element::Cell),
    (b"div", Element::Block),
    (b"p", Element::Block),
    (b"li", Element::Block),
    (b"ul", Element::Block),
    (b"tr", Element::Block),
    (b"br", Element::Block),
    (b"h1", Element::Block),
    (b"h2", Element::Block),
    (b"h3", Element::Block),
    (b"h4", Element::Block),
    (b"h5", Element::Block),
    (b"h6", Element::Block),
    (b"address", Element::Block),
    (b"article", Element::Block),
    (b"aside", Element::Block),
    (b"blockquote", Element::Block),
    (b"body", Element::Block),
    (b"button", Element::Block),
    (b"caption", Element::Block),
    (b"center", Element::Block),
    (b"dd", Element::Block),
    (b"details", Element::Block),
    (b"dialog", Element::Block),
    (b"dir", Element::Block),
    (b"dl", Element::Block),
    (b"dt", Element::Block),
    (b"fieldset", Element::Block),
    (b"figcaption", Element::Block),
    (b"figure", Element::Block),
    (b"footer", Element::Block),
    (b"frameset", Element::Block),
    (b"header", Element::Block),
    (b"hgroup", Element::Block),
    (b"hr", Element::Block),
    (b"legend", Element::Block),
    (b"listing", Element::Block),
    (b"main", Element::Block),
    (b"menu", Element::Block),
    (b"nav", Element::Block),
    (b"ol", Element::Block),
    (b"optgroup", Element::Block),
    (b"option", Element::Block),
    (b"pre", Element::Block),
    (b"search", Element::Block),
    (b"section", Element::Block),
    (b"select", Element::Block),
    (b"summary", Element::Block),
    (b"table", Element::Block),
    (b"tbody", Element::Block),
    (b"tfoot", Element::Block),
    (b"thead", Element::Block),
];

/// A name of up to eight letters as a number, as `Name` has it.
const fn number_of(name: &[u8]) -> u64 {
    let mut number = 0;
    let mut at = name.len();
    while at > 0 {
        at -= 1;
        number = number << 8 | name[at] as u64;
    }
    number
}

const SHORT_BYTES_MAX: usize = 8;
const SLOT_BITS: u32 = 8;

const fn slot_of(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_BITS)) as usize
}

/// The short names of `ELEMENTS`: from where a name's number leads on, to the first place that is free. A number
/// alone does not tell a name from one with NUL behind it: so the length is there, too.
static SLOTS: [(u64, usize, Element); 1 << SLOT_BITS] = {
    let mut table = [(0, 0, Element::Other); 1 << SLOT_BITS];
    let mut row = 0;
    while row < ELEMENTS.len() {
        let (name, element) = ELEMENTS[row];
        row += 1;
        if name.len() <= SHORT_BYTES_MAX {
            let number = number_of(name);
            let mut slot = slot_of(number);
            while table[slot].0 != 0 {
                slot = (slot + 1) % table.len();
            }
            table[slot] = (number, name.len(), element);
        }
    }
    table
};

#[inline]
fn element(name: Name<'_>) -> Element {
    if name.number == 0 {
        return long_element(name.written);
    }
    let mut slot = slot_of(name.number);
    loop {
        let (number, size, element) = SLOTS[slot];
        if number == name.number && size == name.written.len() {
            return element;
        }
        if number == 0 {
            return Element::Other;
        }
        slot = (slot + 1) % SLOTS.len();
    }
}

fn long_element(name: &str) -> Element {
    let octets = name.as_bytes();
    let long = ELEMENTS.iter().filter(|(known, _)| known.len() > SHORT_BYTES_MAX);
    let mut found = long.filter(|(known, _)| known.eq_ignore_ascii_case(octets));
    found.next().map_or(Element::Other, |(_, element)| *element)
}

/// Elements of HTML that end svg and math around them (WHATWG HTML 13.2.6.5).
fn breaks_out(name: &str) -> bool {
    let mut room = [0; NAME_BYTES_MAX];
    lowered(name, &mut room).is_some_and(|name| {
        matches!(
            name,
            b"b" | b"big"
                | b"blockquote"
                | b"body"
                | b"br"
                | b"center"
                | b"code"
                | b"dd"
                | b"div"
                | b"dl"
                | b"dt"
                | b"em"
                | b"embed"
                | b"h1"
                | b"h2"
                | b"h3"
                | b"h4"
                | b"h5"
                | b"h6"
                | b"head"
                | b"hr"
                | b"i"
                | b"img"
                | b"li"
                | b"listing"
                | b"menu"
                | b"meta"
                | b"nobr"
                | b"ol"
                | b"p"
                | b"pre"
                | b"ruby"
                | b"s"
                | b"small"
                | b"span"
                | b"strong"
                | b"strike"
                | b"sub"
                | b"sup"
                | b"table"
                | b"tt"
                | b"u"
                | b"ul"
                | b"var"
        )
    })
}

/// Elements of svg and math that hold HTML.
fn holds_html(name: &str, inside: Inside) -> bool {
    let mut room = [0; NAME_BYTES_MAX];
    lowered(name, &mut room).is_some_and(|name| match inside {
        Inside::Svg => matches!(name, b"foreignobject" | b"desc" | b"title"),
        Inside::Math => matches!(name, b"mi" | b"mo" | b"mn" | b"ms" | b"mtext"),
        Inside::Html => false,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    Svg,
    Math,
    Html,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Blank,
    Line,
}

/// Words as they come, parted by one blank or line feed, up to a bound in bytes.
struct Words {
    text: Vec<u8>,
    gap: Gap,
    bytes_max: usize,
}

impl Words {
    const fn new(text: Vec<u8>, bytes_max: usize) -> Self {
        Self { text, gap: Gap::None, bytes_max }
    }

    fn full(&self) -> bool {
        self.text.len() >= self.bytes_max
    }

    fn part(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// Whether so many bytes more are within the bound, with what parts them from those before.
    fn has_room(&self, bytes: usize) -> bool {
        self.text.len() + bytes + 4 <= self.bytes_max
    }

    /// Keeps words, one or several that are parted by one blank each, `octets[from..to]`.
    #[inline]
    fn keep_all(&mut self, octets: &[u8], from: usize, to: usize) {
        if self.has_room(to - from) {
            self.begin();
            self.push(octets, from, to);
            return;
        }
        for (row, word) in octets[from..to].split(|octet| *octet == b' ').enumerate() {
            if row > 0 {
                self.part(Gap::Blank);
            }
            self.keep(word);
        }
    }

    fn keep(&mut self, word: &[u8]) {
        if self.bytes_max < self.text.len() + 2 {
            // No later word may follow one that was left out.
            self.bytes_max = self.text.len();
            return;
        }
        self.begin();
        let kept = cut_octets(word, self.bytes_max - self.text.len());
        self.text.extend_from_slice(kept);
        if kept.len() < word.len() {
            self.bytes_max = self.text.len();
        }
    }

    /// Parts the next word from those before.
    #[inline]
    fn begin(&mut self) {
        if self.gap != Gap::None && !self.text.is_empty() {
            self.text.push(if self.gap == Gap::Blank { b' ' } else { b'\n' });
        }
        self.gap = Gap::None;
    }

    /// Appends `octets[from..to]`.
    #[inline]
    fn push(&mut self, octets: &[u8], from: usize, to: usize) {
        // Most texts between tags are short: a copy of one size takes no call.
        const SHORT: usize = 16;
        match octets[from..].first_chunk::<SHORT>() {
            Some(chunk) if to - from <= SHORT => {
                let end = self.text.len() + to - from;
                self.text.extend_from_slice(chunk);
                self.text.truncate(end);
            }
            _ => self.text.extend_from_slice(&octets[from..to]),
        }
    }
}

/// Where words end that begin at a place and are parted by one blank each; the place itself if white space stands there.
#[inline]
fn words_end(octets: &[u8], from: usize, to: usize) -> usize {
    let mut at = from;
    let mut parted = 0x80; // the mark of an octet in front that is a blank: none may follow it
    while at < to {
        let Some(eight) = eight::at(octets, at) else { break };
        let low = eight::below(eight, b' ' + 1);
        if low != 0 {
            let blank = eight::equal(eight, b' ');
            let found = low & !blank | blank & (blank << 8 | parted);
            if found != 0 {
                at += eight::first(found);
                break;
            }
            parted = blank >> 56;
        } else {
            parted = 0;
        }
        at += 8;
    }
    at = at.min(to);
    // An octet that is found may be a control character, which words have.
    while at < to {
        let octet = octets[at];
        if is_space(octet) && (octet != b' ' || at == from || octets[at - 1] == b' ') {
            break;
        }
        at += 1;
    }
    if at > from && octets[at - 1] == b' ' {
        at -= 1;
    }
    at
}

/// Whether a reference may begin in `octets[from..to]`, or a NUL stands there.
#[inline]
fn is_written_otherwise(octets: &[u8], from: usize, to: usize) -> bool {
    const NEAR: usize = 32;
    let mut at = from;
    while at < to && at < from + NEAR {
        let Some(eight) = eight::at(octets, at) else { break };
        let found = eight::equal(eight, b'&') | eight::equal(eight, 0);
        if found != 0 {
            return at + eight::first(found) < to;
        }
        at += 8;
    }
    at < to && memchr::memchr2(b'&', 0, &octets[at..to]).is_some()
}

/// The link whose text is read.
struct Anchor {
    row: usize,
    /// Where its text begins in the visible one, as long as it stands there from end to end.
    from: Option<usize>,
    /// Its words otherwise.
    words: Words,
}

struct Reader<'t> {
    bounds: Bounds,
    xml: bool,
    /// The encoding of the queries of addresses, where it is not UTF-8.
    of_queries: Option<&'static Encoding>,
    page: Page,
    left: [usize; 2],
    /// The places that the links of each sort name, once it has as many links as may be.
    places: [Option<HashSet<String>>; 2],
    rel_codes: HashMap<String, u32>,
    metas: usize,
    visible: Words,
    anchor: Option<Anchor>,
    templates: usize,
    /// The element whose text is not visible.
    hiding: Option<Element>,
    foreign: Vec<(Inside, &'t str)>,
    html_language: bool,
    /// The encoding that the first meta element names that names one.
    late: Option<&'static Encoding>,
    scratch: String,
}

impl<'t> Sink<'t> for Reader<'t> {
    type Element = Element;

    #[inline]
    fn element(&self, name: Name<'t>) -> Element {
        element(name)
    }

    #[inline]
    fn text(&mut self, whole: &'t str, from: usize, to: usize, place: Place) {
        if let Some(hiding) = self.hiding {
            if hiding == Element::Title && self.page.title.is_none() && self.templates == 0 {
                let mut title = String::new();
                decode_into(&mut title, cut(&whole[from..to], self.bounds.value_bytes), place);
                self.page.title = Some(title);
            }
            return;
        }
        // The text of a link in a template is a link's text all the same.
        let visible = self.templates == 0 && !self.visible.full();
        if !visible && self.anchor.is_none() {
            return;
        }
        if is_written_otherwise(whole.as_bytes(), from, to) {
            self.decoded(&whole[from..to], place);
        } else {
            self.words(whole.as_bytes(), from, to);
        }
    }

    fn wants(&self, element: Element) -> bool {
        matches!(element, Element::Link(_) | Element::Base | Element::Meta | Element::Html)
    }

    #[inline]
    fn start(
        &mut self,
        element: Element,
        name: &'t str,
        attributes: &[Attribute<'t>],
        closed: bool,
    ) -> Next {
        if let Some((inside @ (Inside::Svg | Inside::Math), _)) = self.foreign.last().copied() {
            if breaks_out(name) {
                self.leave_foreign();
            } else {
                return self.start_foreign(name, element, attributes, closed, inside);
            }
        }
        match element {
            Element::Block => self.part(Gap::Line),
            Element::Cell => self.part(Gap::Blank),
            Element::Other => {}
            Element::Link(kind) => return self.start_link(kind, element, attributes, closed),
            Element::Meta => self.meta(attributes),
            Element::Base => {
                // A template is no part of the document (WHATWG HTML 4.12.3).
                if self.page.base.is_none() && self.templates == 0 {
                    self.page.base = self.base(attributes);
                }
            }
            Element::Html => {
                if !self.html_language {
                    if let Some(language) = value(attributes, "lang") {
                        self.html_language = true;
                        if !language.is_empty() {
                            self.page.language =
                                Some(cut(&language, self.bounds.value_bytes).to_owned());
                        }
                    }
                }
            }
            Element::Template => self.templates += usize::from(!(closed && self.xml)),
            Element::Svg => self.enter(Inside::Svg, name, closed),
            Element::Math => self.enter(Inside::Math, name, closed),
            Element::Plaintext => {
                self.part(Gap::Line);
                return Next::Plaintext;
            }
            Element::Title
            | Element::Style
            | Element::Textarea
            | Element::Xmp
            | Element::Hidden => {
                if closed && self.xml {
                    return Next::Data;
                }
                return self.start_raw(element);
            }
        }
        Next::Data
    }

    #[inline]
    fn end(&mut self, element: Element, name: &'t str) {
        if self.hiding == Some(element) {
            if element == Element::Title && self.page.title.is_none() && self.templates == 0 {
                self.page.title = Some(String::new());
            }
            self.hiding = None;
        }
        if !self.foreign.is_empty() {
            let known = self.foreign.iter().rposition(|(_, open)| open.eq_ignore_ascii_case(name));
            if let Some(at) = known {
                self.foreign.truncate(at);
            } else if self.foreign()
                && matches!(element, Element::Block)
                && breaks_out(name)
                && name.len() < 3
            {
                self.leave_foreign(); // </p> and </br>; the other short ones do no harm
            }
        }
        match element {
            Element::Link(0) => self.close_anchor(),
            Element::Template => self.templates = self.templates.saturating_sub(1),
            Element::Block | Element::Xmp | Element::Textarea => self.part(Gap::Line),
            Element::Cell => self.part(Gap::Blank),
            Element::Link(9) => self.part(Gap::Line),
            _ => {}
        }
    }

    fn foreign(&self) -> bool {
        matches!(self.foreign.last(), Some((Inside::Svg | Inside::Math, _)))
    }
}

impl<'t> Reader<'t> {
    fn new(text: &str, encoding: &'static Encoding, xml: bool, bounds: Bounds) -> Self {
        // About what pages have; columns grow where one has more.
        let links = (text.len() / BYTES_PER_LINK).min(bounds.links);
        let mut offsets = Vec::with_capacity(links + 1);
        offsets.push(0);
        let page = Page {
            charset: encoding.name().to_ascii_lowercase(),
            arena: String::with_capacity(links * LINK_BYTES),
            offsets,
            links: Links {
                kinds: Vec::with_capacity(links),
                rels: Vec::with_capacity(links),
                rel_names: vec![String::new()],
                texts: Vec::with_capacity(links * LINK_BYTES / 2),
                text_starts: Vec::with_capacity(links),
                text_ends: Vec::with_capacity(links),
                alternates: Vec::new(),
            },
            ..Page::default()
        };
        let room = (text.len() / BYTES_PER_TEXT_BYTE).min(bounds.text_bytes);
        Self {
            bounds,
            xml,
            of_queries: query::of_page(encoding),
            page,
            left: [bounds.links; 2],
            places: [None, None],
            rel_codes: HashMap::new(),
            metas: 0,
            visible: Words::new(Vec::with_capacity(room), bounds.text_bytes),
            anchor: None,
            templates: 0,
            hiding: None,
            foreign: Vec::new(),
            html_language: false,
            late: None,
            scratch: String::new(),
        }
    }

    fn ended(mut self) -> Page {
        self.close_anchor();
        self.page.text = self.visible.text;
        self.page
    }

    fn part(&mut self, gap: Gap) {
        self.visible.part(gap);
        if let Some(anchor) = &mut self.anchor {
            anchor.words.part(Gap::Blank);
        }
    }

    /// Takes text in which references are written, or NUL.
    fn decoded(&mut self, raw: &str, place: Place) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        decode_into(&mut scratch, raw, place);
        if place == Place::Data && scratch.contains('\0') {
            scratch.retain(|character| character != '\0');
        }
        self.words(scratch.as_bytes(), 0, scratch.len());
        self.scratch = scratch;
    }

    /// Takes visible text: its words go to the page's text and to that of the link around them.
    #[inline]
    fn words(&mut self, octets: &[u8], from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let end = words_end(octets, at, to);
            if end > at {
                self.keep(octets, at, end);
                at = end;
                continue;
            }
            self.part(Gap::Blank);
            at += 1;
            while at < to && is_space(octets[at]) {
                at += 1;
            }
        }
    }

    #[inline]
    fn keep(&mut self, octets: &[u8], from: usize, to: usize) {
        let visible = self.templates == 0 && !self.visible.full();
        if let Some(anchor) = &mut self.anchor {
            if let Some(start) = anchor.from {
                let bytes = self.visible.text.len() - start + to - from;
                let stays =
                    visible && self.visible.has_room(to - from) && anchor.words.has_room(bytes);
                if !stays {
                    anchor.words.text.extend(shown(&self.visible.text[start..]));
                    let parted = self.visible.gap != Gap::None;
                    anchor.words.gap = if parted { Gap::Blank } else { Gap::None };
                    anchor.from = None;
                }
            }
            if anchor.from.is_none() {
                anchor.words.keep_all(octets, from, to);
            }
        }
        if visible {
            self.visible.keep_all(octets, from, to);
        }
    }

    fn enter(&mut self, inside: Inside, name: &'t str, closed: bool) {
        if !closed && self.foreign.len() < FOREIGN_DEPTH_MAX {
            self.foreign.push((inside, name));
        }
    }

    fn leave_foreign(&mut self) {
        let html = self.foreign.iter().rposition(|(inside, _)| *inside == Inside::Html);
        self.foreign.truncate(html.map_or(0, |at| at + 1));
        self.hiding = None;
    }

    fn start_foreign(
        &mut self,
        name: &'t str,
        element: Element,
        attributes: &[Attribute<'t>],
        closed: bool,
        inside: Inside,
    ) -> Next {
        match element {
            Element::Svg => self.enter(Inside::Svg, name, closed),
            Element::Math => self.enter(Inside::Math, name, closed),
            Element::Style | Element::Link(7) => {
                if element != Element::Style {
                    self.link(7, attributes);
                }
                self.hiding = if closed { None } else { Some(element) };
            }
            Element::Link(6) if !name.eq_ignore_ascii_case("img") => {} // the image of svg
            Element::Link(kind) => {
                self.start_anchor(kind);
                let row = self.link_of_foreign(kind, attributes);
                self.open_anchor(kind, row, closed);
            }
            _ if holds_html(name, inside) => self.enter(Inside::Html, name, closed),
            _ => {}
        }
        Next::Data
    }

    fn start_raw(&mut self, element: Element) -> Next {
        match element {
            Element::Title => {
                self.hiding = Some(element);
                Next::Rcdata
            }
            Element::Textarea => {
                self.part(Gap::Line);
                Next::Rcdata
            }
            Element::Xmp => {
                self.part(Gap::Line);
                Next::Rawtext
            }
            Element::Link(7) => {
                self.hiding = Some(element);
                Next::Script
            }
            _ => {
                self.hiding = Some(element);
                Next::Rawtext
            }
        }
    }

    fn start_link(
        &mut self,
        kind: u8,
        element: Element,
        attributes: &[Attribute<'t>],
        closed: bool,
    ) -> Next {
        self.start_anchor(kind);
        let row = self.link(kind, attributes);
        match kind {
            0 => self.open_anchor(kind, row, closed && self.xml),
            9 => self.part(Gap::Line),
            // iframe, script
            3 | 7 if !(closed && self.xml) => return self.start_raw(element),
            _ => {}
        }
        Next::Data
    }

    fn base(&self, attributes: &[Attribute<'t>]) -> Option<String> {
        let mut base = value(attributes, "href")?;
        if let Some(encoding) = self.of_queries {
            query::encode(&mut base, 0, encoding);
        }
        Some(base)
    }

    fn start_anchor(&mut self, kind: u8) {
        if kind == 0 {
            self.close_anchor();
        }
    }

    fn open_anchor(&mut self, kind: u8, row: Option<usize>, closed: bool) {
        if let (0, Some(row), false) = (kind, row, closed) {
            let words = Words::new(Vec::new(), self.bounds.link_text_bytes);
            self.anchor = Some(Anchor { row, from: Some(self.visible.text.len()), words });
        }
    }

    fn close_anchor(&mut self) {
        let Some(anchor) = self.anchor.take() else { return };
        self.page.links.text_starts[anchor.row] = self.page.links.texts.len() as u32;
        match anchor.from {
            Some(start) => self.page.links.texts.extend(shown(&self.visible.text[start..])),
            None => self.page.links.texts.extend_from_slice(&anchor.words.text),
        }
        self.page.links.text_ends[anchor.row] = self.page.links.texts.len() as u32;
    }

    fn set_text(&mut self, row: usize, text: &str) {
        self.page.links.text_starts[row] = self.page.links.texts.len() as u32;
        self.page.links.texts.extend_from_slice(text.as_bytes());
        self.page.links.text_ends[row] = self.page.links.texts.len() as u32;
    }

    /// The link of an element of svg or math: an `a` has its address in href, or as SVG 1.1 has it in xlink:href.
    fn link_of_foreign(&mut self, kind: u8, attributes: &[Attribute<'t>]) -> Option<usize> {
        let old = kind == 0 && find(attributes, "href").is_none();
        self.link_at(kind, if old { "xlink:href" } else { place_of_kind(kind) }, attributes)
    }

    /// Takes in the link of an element, if it has an address and there is room; answers its row.
    fn link(&mut self, kind: u8, attributes: &[Attribute<'t>]) -> Option<usize> {
        self.link_at(kind, place_of_kind(kind), attributes)
    }

    fn link_at(&mut self, kind: u8, place: &str, attributes: &[Attribute<'t>]) -> Option<usize> {
        let with_href = has_href(kind);
        let written = find(attributes, place)?;
        if kind == 9 && value(attributes, "method").is_some_and(|method| is_post(&method)) {
            return None; // a plain request for its address does not give the page behind it
        }
        let row = self.address(kind, written)?;
        if with_href {
            if let Some(rel) = value(attributes, "rel") {
                let rel = normal_rel(&rel, self.bounds.value_bytes);
                let alternate = kind == 5 && rel.split(' ').any(|word| word == "alternate");
                self.page.links.rels[row] = self.code_of(rel);
                if alternate && self.page.links.alternates.len() < self.bounds.metas {
                    let most = self.bounds.link_text_bytes;
                    let of = |name| one_line(&value(attributes, name).unwrap_or_default(), most);
                    self.page.links.alternates.push((row as u32, of("hreflang"), of("type")));
                }
            }
        }
        let shown = match kind {
            1 | 6 => "alt",
            5 => "title",
            _ => return Some(row),
        };
        if let Some(text) = value(attributes, shown) {
            let text = one_line(&text, self.bounds.link_text_bytes);
            self.set_text(row, &text);
        }
        Some(row)
    }

    /// A row for an address as written; None if it leads nowhere by http, or there is no room.
    fn address(&mut self, kind: u8, written: &str) -> Option<usize> {
        if has_other_scheme(written.as_bytes()) {
            return None;
        }
        let leads = kind <= META;
        let start = self.page.arena.len();
        decode_into(&mut self.page.arena, written, Place::Value);
        if let Some(encoding) = self.of_queries {
            query::encode(&mut self.page.arena, start, encoding);
        }
        if self.left[usize::from(leads)] > 0 {
            self.left[usize::from(leads)] -= 1;
        } else if !self.names_another(leads, start) {
            self.page.arena.truncate(start);
            return None;
        }
        self.page.offsets.push(self.page.arena.len() as i64);
        self.page.links.kinds.push(kind);
        self.page.links.rels.push(0);
        self.page.links.text_starts.push(0);
        self.page.links.text_ends.push(0);
        Some(self.page.links.kinds.len() - 1)
    }

    /// Whether an address behind the first ones of its sort, which begins at `start` and ends the arena, names another
    /// place than all before it; counts it where there is no room for it. Indexes name some hundred pages ten thousand
    /// times, and few of them late.
    fn names_another(&mut self, leads: bool, start: usize) -> bool {
        let page = &mut self.page;
        let places = self.places[usize::from(leads)].get_or_insert_with(|| {
            let rows = page.links.kinds.iter().zip(page.offsets.windows(2));
            rows.filter(|(kind, _)| (**kind <= META) == leads)
                .map(|(_, ends)| &page.arena[ends[0] as usize..ends[1] as usize])
                .map(|address| place_of(address).to_owned())
                .collect()
        });
        let place = place_of(&page.arena[start..]);
        if places.contains(place) {
            return false;
        }
        if places.len() >= self.bounds.links {
            page.left_out += 1;
            return false;
        }
        places.insert(place.to_owned())
    }

    fn code_of(&mut self, rel: String) -> u32 {
        if rel.is_empty() {
            return 0;
        }
        if let Some(code) = self.rel_codes.get(&rel) {
            return *code;
        }
        let code = self.page.links.rel_names.len() as u32;
        self.page.links.rel_names.push(rel.clone());
        self.rel_codes.insert(rel, code);
        code
    }

    fn meta(&mut self, attributes: &[Attribute<'t>]) {
        if self.late.is_none() {
            let pragma = value(attributes, "http-equiv");
            let typed = pragma.is_some_and(|pragma| pragma.eq_ignore_ascii_case("content-type"));
            let content = if typed { value(attributes, "content") } else { None };
            self.late = of_late_meta(value(attributes, "charset").as_deref(), content.as_deref());
        }
        let Some(written) = find(attributes, "content") else { return };
        if self.metas >= self.bounds.metas {
            return;
        }
        self.metas += 1;
        let mut content = String::new();
        decode_into(&mut content, cut(written, self.bounds.value_bytes), Place::Value);
        let equivalent = value(attributes, "http-equiv").unwrap_or_default().to_ascii_lowercase();
        if equivalent == "refresh" {
            if let Some((seconds, address)) = refresh(&content) {
                if self.page.refresh.is_none() && self.templates == 0 {
                    let mut target = address.to_owned();
                    if let Some(encoding) = self.of_queries {
                        query::encode(&mut target, 0, encoding);
                    }
                    self.page.refresh = Some((seconds, target));
                }
                if !address.is_empty() {
                    // It is decoded already, and a row decodes again.
                    let written = address.replace('&', "&amp;");
                    self.address(META, &written);
                }
            }
        } else if self.templates > 0 {
            // It says nothing of the page.
        } else if equivalent == "content-language" {
            if self.page.language.is_none() && !content.is_empty() {
                self.page.language = Some(content);
            }
        } else if let Some(name) = value(attributes, "name") {
            if !name.is_empty() {
                let name = cut(&name, self.bounds.link_text_bytes).to_ascii_lowercase();
                self.page.metas.push((name, content));
            }
        }
    }
}

/// Whether the address of a link of this kind stands in href.
fn has_href(kind: u8) -> bool {
    matches!(kind, 0 | 1 | 5)
}

/// The attribute that holds the address of a link of this kind.
fn place_of_kind(kind: u8) -> &'static str {
    match kind {
        _ if has_href(kind) => "href",
        9 => "action",
        _ => "src",
    }
}

/// A part of the visible text as that of a link: without what parts it from the words before, on one line.
fn shown(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let text = match text {
        [b' ' | b'\n', rest @ ..] => rest,
        _ => text,
    };
    text.iter().map(|octet| if *octet == b'\n' { b' ' } else { *octet })
}

fn find<'t>(attributes: &[Attribute<'t>], name: &str) -> Option<&'t str> {
    let found = attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name));
    found.map(|attribute| attribute.value)
}

fn value(attributes: &[Attribute<'_>], name: &str) -> Option<String> {
    find(attributes, name).map(|written| {
        let mut decoded = String::with_capacity(written.len());
        decode_into(&mut decoded, written, Place::Value);
        decoded
    })
}

fn is_post(method: &str) -> bool {
    method
        .trim_matches(|character: char| character.is_ascii() && is_space(character as u8))
        .eq_ignore_ascii_case("post")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| character.is_ascii() && is_space(character as u8))
        .filter(|word| !word.is_empty())
}

fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line = String::new();
    for word in words(text) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > bytes_max {
            break;
        }
    }
    cut(&line, bytes_max).to_owned()
}

fn normal_rel(rel: &str, bytes_max: usize) -> String {
    let mut line = one_line(rel, bytes_max);
    line.make_ascii_lowercase();
    line
}

/// Whether an address names a scheme that is neither http nor https, however it goes on.
fn has_other_scheme(written: &[u8]) -> bool {
    let from = written.iter().position(|octet| *octet > 0x20).unwrap_or(written.len());
    let rest = &written[from..];
    if !rest.first().is_some_and(u8::is_ascii_alphabetic) {
        return false;
    }
    let is_part = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'-' | b'.');
    let Some(end) = rest.iter().position(|octet| !is_part(octet)) else { return false };
    let scheme = &rest[..end];
    rest[end] == b':'
        && !scheme.eq_ignore_ascii_case(b"http")
        && !scheme.eq_ignore_ascii_case(b"https")
}

/// Seconds and address ("" for the page itself) of a meta refresh; None if a browser would ignore it (WHATWG HTML
/// 4.2.5.3, the shared declarative refresh steps).
fn refresh(content: &str) -> Option<(u32, &str)> {
    const SECONDS_DIGITS_MAX: usize = 9;
    let octets = content.as_bytes();
    let skip = |from: usize, ok: &dyn Fn(u8) -> bool| {
        octets[from..]
            .iter()
            .position(|octet| !ok(*octet))
            .map_or(octets.len(), |found| from + found)
    };
    let start = skip(0, &is_space);
    let digits = skip(start, &|octet| octet.is_ascii_digit());
    if digits == start && octets.get(start) != Some(&b'.') {
        return None;
    }
    let seconds = content[start..digits.min(start + SECONDS_DIGITS_MAX)].parse().unwrap_or(0);
    let mut at = skip(digits, &|octet| octet.is_ascii_digit() || octet == b'.');
    match octets.get(at) {
        None => return Some((seconds, "")),
        Some(octet) if is_space(*octet) || matches!(octet, b';' | b',') => {}
        Some(_) => return None,
    }
    at = skip(at, &is_space);
    if matches!(octets.get(at), Some(b';' | b',')) {
        at += 1;
    }
    at = skip(at, &is_space);
    if octets.len() >= at + 3 && octets[at..at + 3].eq_ignore_ascii_case(b"url") {
        let sign = skip(at + 3, &is_space);
        if octets.get(sign) == Some(&b'=') {
            at = skip(sign + 1, &is_space);
        }
    }
    let mut address = &content[at..];
    if let Some(quote @ (b'"' | b'\'')) = octets.get(at) {
        address = &address[1..];
        if let Some(end) = address.bytes().position(|octet| octet == *quote) {
            address = &address[..end];
        }
    }
    Some((seconds, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        links: 100,
        text_bytes: 1_000,
        link_text_bytes: 20,
        metas: 10,
        attributes: 10,
        value_bytes: 1_000,
    };

    fn page(markup: &str) -> Page {
        read(markup.as_bytes(), None, false, BOUNDS)
    }

    fn str_of(octets: &[u8]) -> &str {
        std::str::from_utf8(octets).unwrap()
    }

    fn links(page: &Page) -> Vec<(&str, &str, &str)> {
        let texts = str_of(&page.links.texts);
        let text = |row: usize| {
            &texts[page.links.text_starts[row] as usize..page.links.text_ends[row] as usize]
        };
        let address = |row: usize| {
            let (start, end) = (page.offsets[row] as usize, page.offsets[row + 1] as usize);
            &page.arena[start..end]
        };
        (0..page.links.kinds.len())
            .map(|row| (KINDS[usize::from(page.links.kinds[row])], address(row), text(row)))
            .collect()
    }

    #[test]
    fn links_have_kind_address_and_text() {
        let read = page("<a href='x&amp;y'>one <b>t</b>wo</a><img src=i alt=' a  b '><a href=mailto:x>m</a><form method=POST action=f>");
        assert_eq!(vec![("a", "x&y", "one two"), ("img", "i", "a b")], links(&read));
        assert_eq!(b"one twom", read.text.as_slice());
    }

    #[test]
    fn a_picture_ends_where_its_elements_say() {
        let read = page("<svg><title/><style>x{}</style><a href=1>in</a><script/></svg><title>t</title><a href=2>");
        assert_eq!(vec!["1", "2"], links(&read).iter().map(|link| link.1).collect::<Vec<_>>());
        assert_eq!((Some("t".to_owned()), &b"in"[..]), (read.title.clone(), read.text.as_slice()));
    }

    #[test]
    fn text_is_cut_between_characters_and_ends_there() {
        let bounds = Bounds { text_bytes: 6, ..BOUNDS };
        assert_eq!(
            "ab \u{fc}".as_bytes(),
            read("ab \u{fc}\u{fc}x y".as_bytes(), None, false, Bounds { text_bytes: 5, ..bounds })
                .text
        );
    }

    #[test]
    fn the_text_of_a_link_is_the_same_wherever_it_is_kept() {
        for (markup, text) in [
            ("x<a href=1> one <p>two</p> three <b>fo</b>ur five", "one two three four f"),
            ("x <a href=1>one two three <b>fo</b>ur five", "one two three four f"),
            ("x <a href=1>one two three f<b>o</b><i>u</i> r", "one two three fou r"),
            ("x<a href=1>a <template>b </template>c<i>d</i> e", "a b cd e"),
            ("x<template><a href=1>a </template><p>b<i>c</i>", "a bc"),
            ("x<a href=1>one two three fou r<i>\u{fc}\u{fc}</i> v", "one two three fou r"),
            ("x<a href=1>\u{fc} \u{fc}<br>\u{fc}\r\n</a>", "\u{fc} \u{fc} \u{fc}"),
        ] {
            assert_eq!(vec![("a", "1", text)], links(&page(markup)), "{markup}");
        }
        let bounds = Bounds { text_bytes: 6, ..BOUNDS };
        let read = read(b"ab<a href=1>cd e<b>f</b>g", None, false, bounds);
        assert_eq!(("abcd e", "cd efg"), (str_of(&read.text), links(&read)[0].2));
    }

    #[test]
    fn a_refresh_is_a_link_at_its_place() {
        let read = page("<link href=l rel='a  B'><meta http-equiv=Refresh content='5; url=n&amp;amp;'><link href=m>");
        assert_eq!(
            vec!["l", "n&amp;", "m"],
            links(&read).iter().map(|link| link.1).collect::<Vec<_>>()
        );
        assert_eq!(
            (Some((5, "n&amp;".to_owned())), "a b"),
            (read.refresh.clone(), read.links.rel_names[1].as_str())
        );
    }
}
