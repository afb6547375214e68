//! Pages: columns of what is in them, and for tests the tokens of the reader.

use outrider_kernels::html;
use outrider_kernels::html::page::{self, Bounds, Links};
use outrider_kernels::html::references::{decode_into, Place};
use outrider_kernels::html::tokens::{tokenize, Attribute, Name, Next, Sink};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::columns::bytes_of;
use crate::octets::Octets;

type Limits = (usize, usize, usize, usize, usize, usize);

#[pyfunction]
pub(crate) fn read_html<'py>(
    body: &Bound<'py, PyAny>,
    label: Option<&str>,
    xml: bool,
    limits: Limits,
) -> PyResult<Bound<'py, PyTuple>> {
    let (links, text_bytes, link_text_bytes, metas, attributes, value_bytes) = limits;
    let bounds = Bounds { links, text_bytes, link_text_bytes, metas, attributes, value_bytes };
    let py = body.py();
    let octets = Octets::of(body)?;
    let found = octets.run(py, |octets| page::read(octets, label, xml, bounds));
    let offsets = found.offsets.iter().map(|offset| offset.to_le_bytes());
    let mut columns = vec![
        found.charset.into_pyobject(py)?.into_any(),
        PyBytes::new(py, found.arena.as_bytes()).into_any(),
        bytes_of(py, offsets).into_any(),
    ];
    columns.extend(columns_of(py, &found.links)?);
    columns.extend([
        found.metas.into_pyobject(py)?.into_any(),
        found.refresh.into_pyobject(py)?.into_any(),
        found.base.into_pyobject(py)?.into_any(),
        found.title.into_pyobject(py)?.into_any(),
        found.language.into_pyobject(py)?.into_any(),
        PyBytes::new(py, &found.text).into_any(),
        found.left_out.into_pyobject(py)?.into_any(),
    ]);
    PyTuple::new(py, columns)
}

/// The columns of links, but for their addresses.
pub(crate) fn columns_of<'py>(py: Python<'py>, links: &Links) -> PyResult<[Bound<'py, PyAny>; 7]> {
    let numbers = |column: &[u32]| bytes_of(py, column.iter().map(|n| n.to_le_bytes())).into_any();
    Ok([
        PyBytes::new(py, &links.kinds).into_any(),
        numbers(&links.rels),
        PyList::new(py, &links.rel_names)?.into_any(),
        PyBytes::new(py, &links.texts).into_any(),
        numbers(&links.text_starts),
        numbers(&links.text_ends),
        links.alternates.clone().into_pyobject(py)?.into_any(),
    ])
}

#[pyfunction]
pub(crate) fn decode_text<'py>(
    body: &Bound<'py, PyAny>,
    label: Option<&str>,
    bytes_max: usize,
) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let py = body.py();
    let octets = Octets::of(body)?;
    let (charset, text) = octets.run(py, |octets| {
        let found = html::decoded(octets, label, false, false);
        let text = page::cut(&found.text, bytes_max).to_owned();
        (found.encoding.name().to_ascii_lowercase(), text)
    });
    Ok((charset, PyBytes::new(py, text.as_bytes())))
}

type Token = (&'static str, String, Vec<(String, String)>, bool);

#[pyfunction]
pub(crate) fn html_tokens(text: &str, state: &str, name: &str) -> PyResult<Vec<Token>> {
    let (next, foreign) = match state {
        "Data state" => (Next::Data, false),
        "CDATA section state" => (Next::Data, true),
        "RCDATA state" => (Next::Rcdata, false),
        "RAWTEXT state" => (Next::Rawtext, false),
        "Script data state" => (Next::Script, false),
        "PLAINTEXT state" => (Next::Plaintext, false),
        _ => return Err(PyValueError::new_err(format!("{state}: no state that a text begins in"))),
    };
    let mut taken = Tokens { tokens: Vec::new(), foreign };
    let text = if foreign { format!("<![CDATA[{text}") } else { text.to_owned() };
    tokenize(&text, next, name, usize::MAX, &mut taken);
    Ok(taken.tokens)
}

struct Tokens {
    tokens: Vec<Token>,
    foreign: bool,
}

impl<'t> Sink<'t> for Tokens {
    type Element = ();

    fn element(&self, _: Name<'t>) {}

    fn text(&mut self, whole: &'t str, from: usize, to: usize, place: Place) {
        let raw = &whole[from..to];
        match self.tokens.last_mut() {
            Some(("Character", text, _, _)) => decode_into(text, raw, place),
            _ => {
                let mut text = String::new();
                decode_into(&mut text, raw, place);
                self.tokens.push(("Character", text, Vec::new(), false));
            }
        }
    }

    fn wants(&self, (): ()) -> bool {
        true
    }

    fn start(&mut self, (): (), name: &'t str, attributes: &[Attribute<'t>], closed: bool) -> Next {
        let mut known: Vec<(String, String)> = Vec::new();
        for attribute in attributes {
            let name = attribute.name.to_ascii_lowercase().replace('\0', "\u{fffd}");
            if known.iter().all(|(other, _)| *other != name) {
                let mut value = String::new();
                decode_into(&mut value, attribute.value, Place::Value);
                known.push((name, value));
            }
        }
        let name = name.to_ascii_lowercase().replace('\0', "\u{fffd}");
        self.tokens.push(("StartTag", name, known, closed));
        Next::Data
    }

    fn end(&mut self, (): (), name: &'t str) {
        let name = name.to_ascii_lowercase().replace('\0', "\u{fffd}");
        self.tokens.push(("EndTag", name, Vec::new(), false));
    }

    fn foreign(&self) -> bool {
        self.foreign
    }
}
