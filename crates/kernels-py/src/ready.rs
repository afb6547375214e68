//! `Ready`: columns in, columns out.

use outrider_kernels::ready as kernel;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{at_most, bytes_of, column, number, rows, same_length};

#[pyclass(module = "outrider._native")]
pub(crate) struct Ready {
    pub(crate) kernel: kernel::Ready,
}

#[pymethods]
impl Ready {
    #[new]
    fn new(seed: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { kernel: kernel::Ready::new(number(seed, "u64", "seed")?) })
    }

    fn offer(
        &mut self,
        queues: &Bound<'_, PyAny>,
        crawls: &Bound<'_, PyAny>,
        classes: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let queues = rows(queues, "queues")?;
        let (crawls, classes) = (rows(crawls, "crawls")?, column::<u8>(classes, "classes")?);
        same_length(("queues", queues.len()), ("crawls", crawls.len()))?;
        same_length(("queues", queues.len()), ("classes", classes.len()))?;
        at_most(&classes, kernel::CLASSES as u8 - 1, "classes")?;
        for ((queue, crawl), class) in queues.into_iter().zip(crawls).zip(classes) {
            self.kernel.offer(queue, crawl, class);
        }
        Ok(())
    }

    fn offer_in_order(
        &mut self,
        queues: &Bound<'_, PyAny>,
        crawls: &Bound<'_, PyAny>,
        dues: &Bound<'_, PyAny>,
        orders: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (queues, crawls) = (rows(queues, "queues")?, rows(crawls, "crawls")?);
        let (dues, orders) = (column::<i64>(dues, "dues")?, column::<u64>(orders, "orders")?);
        for (name, length) in
            [("crawls", crawls.len()), ("dues", dues.len()), ("orders", orders.len())]
        {
            same_length(("queues", queues.len()), (name, length))?;
        }
        let keys = dues.into_iter().zip(orders);
        for ((queue, crawl), key) in queues.into_iter().zip(crawls).zip(keys) {
            self.kernel.offer_in_order(queue, crawl, key);
        }
        Ok(())
    }

    fn withdraw(&mut self, queues: &Bound<'_, PyAny>) -> PyResult<()> {
        for queue in rows(queues, "queues")? {
            self.kernel.withdraw(queue);
        }
        Ok(())
    }

    #[pyo3(signature = (want, crawl = None))]
    fn draw<'py>(
        &mut self,
        py: Python<'py>,
        want: &Bound<'py, PyAny>,
        crawl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let want = number::<u64>(want, "u64", "want")?;
        let crawl = crawl.map(|crawl| number::<u32>(crawl, "u32", "crawl")).transpose()?;
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let next = || match crawl {
            None => self.kernel.draw(),
            Some(crawl) => self.kernel.draw_of(crawl),
        };
        Ok(bytes_of(py, std::iter::from_fn(next).take(want).map(u32::to_le_bytes)))
    }

    fn standing<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = rows(queues, "queues")?;
        let standing = rows.into_iter().map(|queue| [u8::from(self.kernel.stands(queue))]);
        Ok(bytes_of(queues.py(), standing))
    }

    fn __len__(&self) -> usize {
        self.kernel.len()
    }
}
