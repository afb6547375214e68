//! `outrider._native`: the kernels behind Python's names. Each function takes a batch and gives a batch; the contract,
//! errors included, is that of the twins in `src/outrider/kernels`. A panic becomes a Python exception at this border.

mod backlog;
mod blocked_bloom;
mod caseless;
mod columns;
mod extras;
mod fetching;
mod fields;
mod fingerprint_set;
mod groups;
mod html;
mod index;
mod key_pages;
mod key_requests;
mod leases;
mod octets;
mod pages;
mod planes;
mod ready;
mod robots;
mod same_bodies;
mod shapes;
mod simhash;
mod sitemap;
mod suffixes;
mod timetable;
mod turns;
mod values;
mod warc;
mod wire;

use outrider_kernels::{framing, siphash, urls};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::columns::{number, tuple_of};
use crate::octets::Octets;

/// Fewer bytes are copied together in a fraction of a millisecond.
const LET_GO_GATHERED_BYTES_MIN: usize = 1 << 20;
/// Fewer texts to fingerprint, of which each takes some 20 ns, cost others less than taking the GIL again costs us.
const LET_GO_TEXTS_MIN: usize = 1024;

#[pyfunction]
#[pyo3(signature = (data, seed = None))]
fn crc32c(data: &Bound<'_, PyAny>, seed: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    let seed = seed.map_or(Ok(0), |seed| number::<u32>(seed, "u32", "a crc32c seed"))?;
    Ok(Octets::of(data)?.run(data.py(), |octets| framing::crc32c(seed, octets)))
}

#[pyfunction]
fn pack_frames<'py>(rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut packed = Vec::new();
    for (number, row) in rows.try_iter()?.enumerate() {
        let row = row?;
        let (fields, payload) = read_row(&row, number)?;
        let octets = Octets::of(&payload)?;
        let size = octets.as_slice().len();
        if !framing::payload_fits(size) {
            let message =
                format!("row {number}: a payload of {size} bytes exceeds the largest frame");
            return Err(PyValueError::new_err(message));
        }
        framing::pack_frame(fields, octets.as_slice(), &mut packed);
    }
    Ok(PyBytes::new(rows.py(), &packed))
}

fn read_row<'py>(
    row: &Bound<'py, PyAny>,
    number: usize,
) -> PyResult<(framing::Fields, Bound<'py, PyAny>)> {
    let row = row.cast::<PyTuple>()?;
    if row.len() != 7 {
        let message = format!("row {number}: a row has 7 fields, not {}", row.len());
        return Err(PyValueError::new_err(message));
    }
    let read = || {
        Ok(framing::Fields {
            lsn: row.get_item(0)?.extract()?,
            synced: row.get_item(1)?.extract()?,
            epoch: row.get_item(2)?.extract()?,
            kind: row.get_item(3)?.extract()?,
            version: row.get_item(4)?.extract()?,
            codec: row.get_item(5)?.extract()?,
        })
    };
    let fields = read().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(row.py()) {
            let message = format!("row {number}: a number does not fit its field of the frame");
            PyValueError::new_err(message)
        } else {
            error
        }
    })?;
    Ok((fields, row.get_item(6)?))
}

type FrameRow = (usize, usize, u64, u64, u32, u8, u8, u8);

#[pyfunction]
#[pyo3(signature = (buffer, start = 0, limit = None))]
fn scan_frames(
    buffer: &Bound<'_, PyAny>,
    start: i64,
    limit: Option<i64>,
) -> PyResult<(Vec<FrameRow>, usize, u8)> {
    let octets = Octets::of(buffer)?;
    let start = checked_start(start, octets.as_slice().len())?;
    let limit = match limit {
        None => usize::MAX,
        Some(limit) => usize::try_from(limit).map_err(|_| {
            PyValueError::new_err(format!("a limit of frames is not negative, as {limit} is"))
        })?,
    };
    let (frames, end, reason) =
        octets.run(buffer.py(), |octets| framing::scan_frames(octets, start, limit));
    let rows = frames.into_iter().map(|frame| {
        let fields = frame.fields;
        (
            frame.payload_offset,
            frame.payload_length,
            fields.lsn,
            fields.synced,
            fields.epoch,
            fields.kind,
            fields.version,
            fields.codec,
        )
    });
    Ok((rows.collect(), end, reason as u8))
}

#[pyfunction]
#[pyo3(signature = (buffer, start = 0))]
fn find_frame(buffer: &Bound<'_, PyAny>, start: i64) -> PyResult<i64> {
    let octets = Octets::of(buffer)?;
    let start = checked_start(start, octets.as_slice().len())?;
    let found = octets.run(buffer.py(), |octets| framing::find_frame(octets, start));
    Ok(found.map_or(-1, |at| at as i64))
}

fn checked_start(start: i64, size: usize) -> PyResult<usize> {
    usize::try_from(start).ok().filter(|&start| start <= size).ok_or_else(|| {
        PyValueError::new_err(format!("a start of {start} lies outside a buffer of {size} bytes"))
    })
}

fn fingerprinter(key: &Bound<'_, PyAny>) -> PyResult<siphash::Fingerprinter> {
    let octets = Octets::of(key)?;
    let key: &[u8; siphash::KEY_BYTES] = octets.as_slice().try_into().map_err(|_| {
        let (expected, actual) = (siphash::KEY_BYTES, octets.as_slice().len());
        PyValueError::new_err(format!("a fingerprint key has {expected} bytes, not {actual}"))
    })?;
    Ok(siphash::Fingerprinter::new(key))
}

#[pyfunction]
fn fingerprints<'py>(
    texts: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = texts.py();
    if texts.is_instance_of::<PyString>() {
        let message = "texts must be a sequence of strings, not one string";
        return Err(PyTypeError::new_err(message));
    }
    let print = fingerprinter(key)?;
    // The UTF-8 form is Python's own and is kept by the string, which is held here: no text is copied.
    let mut held = Vec::with_capacity(texts.len().unwrap_or(0));
    for text in texts.try_iter()? {
        let text = text?;
        let Ok(string) = text.cast::<PyString>() else {
            let name = text.get_type().name()?;
            let message = format!("a text to fingerprint must be a str, not {name}");
            return Err(PyTypeError::new_err(message));
        };
        let whole = string.to_str().is_ok();
        held.push(if whole {
            text
        } else {
            string.call_method1("encode", ("utf-8", "surrogatepass"))?
        });
    }
    let mut messages: Vec<&[u8]> = Vec::with_capacity(held.len());
    for object in &held {
        messages.push(match object.cast::<PyString>() {
            Ok(string) => string.to_str()?.as_bytes(),
            Err(_) => object.cast::<PyBytes>()?.as_bytes(),
        });
    }
    let hash = || {
        let mut out = Vec::with_capacity(8 * messages.len());
        print.fingerprints(messages.iter().copied(), &mut out);
        out
    };
    let out = if messages.len() >= LET_GO_TEXTS_MIN { py.detach(hash) } else { hash() };
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
fn simhash_of_text(
    text: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    words_max: i64,
) -> PyResult<(u64, usize)> {
    let words_max = usize::try_from(words_max)
        .map_err(|_| PyValueError::new_err(format!("{words_max} words are fewer than none")))?;
    let print = fingerprinter(key)?;
    Ok(Octets::of(text)?
        .run(text.py(), |octets| outrider_kernels::simhash::simhash(octets, &print, words_max)))
}

#[pyfunction]
fn text_digest(text: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>, words_min: i64) -> PyResult<u64> {
    let words_min = usize::try_from(words_min)
        .map_err(|_| PyValueError::new_err(format!("{words_min} words are fewer than none")))?;
    let print = fingerprinter(key)?;
    Ok(Octets::of(text)?
        .run(text.py(), |octets| outrider_kernels::digest::text_digest(octets, &print, words_min)))
}

/// The columns of a batch of URLs, as `outrider.kernels.urls.Columns` has them.
fn column_bytes<'py>(py: Python<'py>, columns: &urls::Columns) -> PyResult<Bound<'py, PyTuple>> {
    tuple_of(
        py,
        [
            &columns.arena,
            &columns.offsets,
            &columns.states,
            &columns.flags,
            &columns.host_lengths,
            &columns.path_starts,
            &columns.fingerprints,
            &columns.host_fingerprints,
        ],
    )
}

fn page_of(page: Option<&str>) -> PyResult<Option<urls::Page<'_>>> {
    let Some(text) = page else { return Ok(None) };
    match urls::Page::of(text.as_bytes()) {
        Some(page) => Ok(Some(page)),
        None => Err(PyValueError::new_err("a page is a canonical http or https URL, or None")),
    }
}

/// Each object of a sequence; TypeError for one string.
fn objects_of<'py>(rows: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if rows.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("urls must be a sequence of strings, not one string"));
    }
    if let Ok(list) = rows.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    rows.try_iter()?.collect()
}

/// The same with half characters, which have no UTF-8 form, as bytes of their own.
fn with_half_characters_encoded<'py>(
    mut objects: Vec<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    for object in &mut objects {
        let Ok(string) = object.cast::<PyString>() else { continue };
        if string.to_str().is_err() {
            *object = string.call_method1("encode", ("utf-8", "surrogatepass"))?;
        }
    }
    Ok(objects)
}

#[pyfunction]
#[pyo3(signature = (rows, page = None, key = None))]
fn spell_urls<'py>(
    rows: &Bound<'py, PyAny>,
    page: Option<&str>,
    key: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = rows.py();
    let page = page_of(page)?;
    let print = key.map(fingerprinter).transpose()?;
    let given = objects_of(rows)?;
    // What is bytes among the rows given is no text; half characters become bytes only afterwards.
    let is_text: Vec<bool> = given.iter().map(|row| row.is_instance_of::<PyString>()).collect();
    let held = with_half_characters_encoded(given)?;
    let mut texts: Vec<Option<&[u8]>> = Vec::with_capacity(held.len());
    for (object, &is_text) in held.iter().zip(&is_text) {
        texts.push(match object.cast::<PyString>() {
            Ok(string) => Some(string.to_str()?.as_bytes()),
            Err(_) if is_text => Some(object.cast::<PyBytes>()?.as_bytes()),
            Err(_) => None,
        });
    }
    let spell = || urls::spell_rows(texts.iter().copied(), page.as_ref(), print.as_ref());
    let columns = if texts.len() >= LET_GO_TEXTS_MIN { py.detach(spell) } else { spell() };
    column_bytes(py, &columns)
}

#[pyfunction]
#[pyo3(signature = (arena, offsets, page = None, key = None))]
fn spell_arena<'py>(
    arena: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    page: Option<&str>,
    key: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let page = page_of(page)?;
    let print = key.map(fingerprinter).transpose()?;
    let octets = Octets::of(arena)?;
    let offsets = int64s(offsets)?;
    if offsets.is_empty() {
        return Err(PyValueError::new_err("offsets name where each row begins and the last ends"));
    }
    let spans = spans_of(&offsets[..offsets.len() - 1], &offsets[1..], octets.as_slice().len())?;
    let columns = octets.run(arena.py(), |octets| {
        let rows = spans.iter().map(|&(start, end)| Some(&octets[start..end]));
        urls::spell_rows(rows, page.as_ref(), print.as_ref())
    });
    column_bytes(arena.py(), &columns)
}

#[pyfunction]
#[pyo3(signature = (rows, page = None))]
fn spell_texts<'py>(
    rows: &Bound<'py, PyAny>,
    page: Option<&str>,
) -> PyResult<(Bound<'py, PyList>, Vec<usize>)> {
    let py = rows.py();
    let page = page_of(page)?;
    let objects = objects_of(rows)?;
    let texts = PyList::empty(py);
    let mut odd = Vec::new();
    let mut out = Vec::new();
    for (row, object) in objects.iter().enumerate() {
        let Ok(string) = object.cast::<PyString>() else {
            texts.append(py.None())?;
            continue;
        };
        out.clear();
        let state = match string.to_str() {
            Ok(text) => {
                let (state, _) = urls::spell(text.as_bytes(), page.as_ref(), &mut out);
                if state == urls::State::Spelled && out == text.as_bytes() {
                    texts.append(object)?;
                    continue;
                }
                state
            }
            Err(_) => {
                let encoded = string.call_method1("encode", ("utf-8", "surrogatepass"))?;
                let octets = encoded.cast::<PyBytes>()?.as_bytes();
                urls::spell(octets, page.as_ref(), &mut out).0
            }
        };
        match state {
            urls::State::Spelled => texts.append(text_of(py, &out)?)?,
            urls::State::Odd => {
                odd.push(row);
                texts.append(py.None())?;
            }
            urls::State::Invalid => texts.append(py.None())?,
        }
    }
    Ok((texts, odd))
}

fn text_of<'py>(py: Python<'py>, octets: &[u8]) -> PyResult<Bound<'py, PyString>> {
    let text = std::str::from_utf8(octets)
        .map_err(|_| PyValueError::new_err("a span holds no whole text in UTF-8"))?;
    Ok(PyString::new(py, text))
}

/// The numbers of a contiguous buffer of i64, as numpy has them.
fn int64s(object: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let buffer = PyBuffer::<i64>::get(object)?;
    buffer.to_vec(object.py())
}

fn spans_of(starts: &[i64], ends: &[i64], size: usize) -> PyResult<Vec<(usize, usize)>> {
    if starts.len() != ends.len() {
        let (starts, ends) = (starts.len(), ends.len());
        let message = format!("{starts} starts and {ends} ends make no spans");
        return Err(PyValueError::new_err(message));
    }
    let mut spans = Vec::with_capacity(starts.len());
    for (row, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        if start < 0 || end < start || end as u64 > size as u64 {
            let message =
                format!("row {row}: a span from {start} to {end} lies outside {size} bytes");
            return Err(PyValueError::new_err(message));
        }
        spans.push((start as usize, end as usize));
    }
    Ok(spans)
}

/// Runs `work` on the texts of spans of an arena.
fn on_spans<T: Send>(
    arena: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    work: impl FnOnce(&[u8], &[(usize, usize)]) -> T + Send,
) -> PyResult<T> {
    let octets = Octets::of(arena)?;
    let spans = spans_of(&int64s(starts)?, &int64s(ends)?, octets.as_slice().len())?;
    Ok(octets.run(arena.py(), |octets| work(octets, &spans)))
}

#[pyfunction]
#[pyo3(signature = (arena, starts, ends, key, until=None))]
fn hash_spans<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    until: Option<u8>,
) -> PyResult<Bound<'py, PyBytes>> {
    let print = fingerprinter(key)?;
    let out = on_spans(arena, starts, ends, |octets, spans| {
        let mut out = Vec::with_capacity(8 * spans.len());
        let texts = spans.iter().map(|&(start, end)| &octets[start..end]);
        match until {
            None => print.fingerprints(texts, &mut out),
            Some(mark) => print.fingerprints_until(mark, texts, &mut out),
        }
        out
    })?;
    Ok(PyBytes::new(arena.py(), &out))
}

#[pyfunction]
fn distinct_spans<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let py = arena.py();
    let (codes, firsts) = on_spans(arena, starts, ends, |octets, spans| {
        urls::distinct(spans.iter().map(|&(start, end)| &octets[start..end]))
    })?;
    Ok((PyBytes::new(py, &codes), PyBytes::new(py, &firsts)))
}

#[pyfunction]
fn unique_spans<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
    wanted: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let py = arena.py();
    let marks = Octets::of_items(wanted, 1, "marks")?.as_slice().to_vec();
    let octets = Octets::of(arena)?;
    let spans = spans_of(&int64s(starts)?, &int64s(ends)?, octets.as_slice().len())?;
    if marks.len() != spans.len() {
        let message = format!("{} spans and {} marks do not go together", spans.len(), marks.len());
        return Err(PyValueError::new_err(message));
    }
    let (texts, offsets, rows) = octets.run(py, |octets| urls::unique(octets, &spans, &marks));
    Ok((
        PyBytes::new(py, &texts),
        columns::bytes_of(py, offsets.into_iter().map(i64::to_le_bytes)),
        columns::bytes_of(py, rows.into_iter().map(u32::to_le_bytes)),
    ))
}

#[pyfunction]
fn gather_spans<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = arena.py();
    let octets = Octets::of(arena)?;
    let spans = spans_of(&int64s(starts)?, &int64s(ends)?, octets.as_slice().len())?;
    let size = spans.iter().map(|(start, end)| end - start).sum();
    PyBytes::new_with(py, size, |gathered| {
        let gather = |octets: &[u8]| {
            let mut rest = gathered;
            for &(start, end) in &spans {
                let (here, behind) = std::mem::take(&mut rest).split_at_mut(end - start);
                here.copy_from_slice(&octets[start..end]);
                rest = behind;
            }
        };
        match &octets {
            Octets::Fixed(octets) if size >= LET_GO_GATHERED_BYTES_MIN => {
                py.detach(|| gather(octets))
            }
            _ => gather(octets.as_slice()),
        }
        Ok(())
    })
}

#[pyfunction]
fn texts_of_spans<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let py = arena.py();
    let octets = Octets::of(arena)?;
    let spans = spans_of(&int64s(starts)?, &int64s(ends)?, octets.as_slice().len())?;
    let texts = PyList::empty(py);
    for (start, end) in spans {
        texts.append(text_of(py, &octets.as_slice()[start..end])?)?;
    }
    Ok(texts)
}

/// The module that Python imports.
#[pymodule]
mod _native {
    /// Grows with each change of what a function takes or gives: `outrider.kernels` refuses a build with another number.
    #[pymodule_export]
    const INTERFACE: u32 = 7;
    #[pymodule_export]
    use super::backlog::Backlog;
    #[pymodule_export]
    use super::blocked_bloom::BlockedBloom;
    #[pymodule_export]
    use super::caseless::holds_all;
    #[pymodule_export]
    use super::extras::with_extras;
    #[pymodule_export]
    use super::fetching::{FetchEngine, FetchLimits};
    #[pymodule_export]
    use super::fields::{head_fields, head_index};
    #[pymodule_export]
    use super::fingerprint_set::FingerprintSet;
    #[pymodule_export]
    use super::groups::Groups;
    #[pymodule_export]
    use super::html::{decode_text, html_tokens, read_html};
    #[pymodule_export]
    use super::index::Index;
    #[pymodule_export]
    use super::key_pages::{find_keys, pack_keys, rank_keys, sort_keys, unpack_keys};
    #[pymodule_export]
    use super::key_requests::answer_requests;
    #[pymodule_export]
    use super::leases::Leases;
    #[pymodule_export]
    use super::pages::{read_pages, PagesRead};
    #[pymodule_export]
    use super::planes::{pack_heads, shuffle_columns, unpack_heads};
    #[pymodule_export]
    use super::ready::Ready;
    #[pymodule_export]
    use super::robots::{robots_verdicts, RobotsRules, RobotsText, RobotsUsages};
    #[pymodule_export]
    use super::same_bodies::SameBodies;
    #[pymodule_export]
    use super::shapes::shapes_of;
    #[pymodule_export]
    use super::simhash::SimHashIndex;
    #[pymodule_export]
    use super::sitemap::read_sitemap_xml;
    #[pymodule_export]
    use super::suffixes::PublicSuffixes;
    #[pymodule_export]
    use super::timetable::Timetable;
    #[pymodule_export]
    use super::turns::{count_leases, settle_shared_turns, settle_turns};
    #[pymodule_export]
    use super::values::kinds_of;
    #[pymodule_export]
    use super::warc::warc_records;
    #[pymodule_export]
    use super::wire::{WireServer, WireTurn};
    #[pymodule_export]
    use super::{
        crc32c, distinct_spans, find_frame, fingerprints, gather_spans, hash_spans, pack_frames,
        scan_frames, simhash_of_text, spell_arena, spell_texts, spell_urls, text_digest,
        texts_of_spans, unique_spans,
    };
}
