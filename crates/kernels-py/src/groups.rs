//! `Groups`: columns in, columns out.

use outrider_kernels::groups as kernel;
use outrider_kernels::rows::NONE;
use outrider_kernels::turns::{follow, HOST_BYTES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::backlog::refused;
use crate::columns::{
    at_most, bytes_of, column, instants, now_and_most, number, rows, rows_at, same_length,
};
use crate::octets::Octets;

#[pyclass(module = "outrider._native")]
pub(crate) struct Groups {
    pub(crate) kernel: kernel::Groups,
}

impl Groups {
    /// A column of groups; ValueError if one was not defined.
    fn defined(&self, groups: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let groups = rows(groups, "groups")?;
        match groups.iter().find(|&&group| !self.kernel.is_defined(group)) {
            Some(group) => Err(PyValueError::new_err(format!("group {group} is not defined"))),
            None => Ok(groups),
        }
    }

    /// Which of them may go, and whose turns were taken.
    fn went<'py>(
        &self,
        py: Python<'py>,
        asking: Vec<u32>,
        displaced: Vec<u32>,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let may_go = asking.into_iter().map(|host| [u8::from(self.kernel.has_turns(host))]);
        (bytes_of(py, may_go), bytes_of(py, displaced.into_iter().map(u32::to_le_bytes)))
    }
}

#[pymethods]
impl Groups {
    #[new]
    fn new() -> Self {
        Self { kernel: kernel::Groups::default() }
    }

    #[pyo3(signature = (group, capacity, gap = None))]
    fn define(
        &mut self,
        group: &Bound<'_, PyAny>,
        capacity: &Bound<'_, PyAny>,
        gap: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let group = number::<u32>(group, "u32", "group")?;
        let capacity = number::<u32>(capacity, "u32", "capacity")?;
        let gap = gap.map_or(Ok(kernel::OF_HOSTS), |gap| number::<i64>(gap, "i64", "gap"))?;
        if group == NONE {
            return Err(PyValueError::new_err(format!("group: {NONE} is no row")));
        }
        if capacity == 0 {
            return Err(PyValueError::new_err(format!("group {group} needs a capacity above 0")));
        }
        if gap < kernel::OF_HOSTS {
            return Err(PyValueError::new_err(format!("group {group} needs a gap of 0 or more")));
        }
        self.kernel.define(group, capacity, gap);
        Ok(())
    }

    fn close(&mut self, groups: &Bound<'_, PyAny>) -> PyResult<()> {
        for group in self.defined(groups)? {
            self.kernel.close(group, true);
        }
        Ok(())
    }

    fn open(&mut self, groups: &Bound<'_, PyAny>) -> PyResult<()> {
        for group in self.defined(groups)? {
            self.kernel.close(group, false);
        }
        Ok(())
    }

    fn follow(&mut self, hosts: &Bound<'_, PyAny>, cells: &Bound<'_, PyAny>) -> PyResult<()> {
        let hosts = rows(hosts, "hosts")?;
        let cells = Octets::of_items(cells, HOST_BYTES, "cells")?;
        follow(&mut self.kernel, &hosts, cells.as_slice()).map_err(refused)
    }

    fn may_go<'py>(
        &self,
        hosts: &Bound<'py, PyAny>,
        now: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (rows, now) = (rows(hosts, "hosts")?, number::<i64>(now, "i64", "now")?);
        let found = rows.into_iter().map(|host| [u8::from(self.kernel.may_go(host, now))]);
        Ok(bytes_of(hosts.py(), found))
    }

    fn stands<'py>(&self, hosts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = rows(hosts, "hosts")?;
        let found = rows.into_iter().map(|host| [u8::from(self.kernel.stands(host))]);
        Ok(bytes_of(hosts.py(), found))
    }

    fn turns<'py>(&self, hosts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = rows(hosts, "hosts")?;
        let turns = rows.into_iter().map(|host| self.kernel.turns(host).to_le_bytes());
        Ok(bytes_of(hosts.py(), turns))
    }

    fn join(&mut self, hosts: &Bound<'_, PyAny>, groups: &Bound<'_, PyAny>) -> PyResult<()> {
        let (hosts, groups) = (rows(hosts, "hosts")?, self.defined(groups)?);
        same_length(("hosts", hosts.len()), ("groups", groups.len()))?;
        let pairs: Vec<(u32, u32)> = hosts.into_iter().zip(groups).collect();
        self.kernel.join(&pairs).map_err(PyValueError::new_err)
    }

    fn leave(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.leave(host);
        }
        Ok(())
    }

    fn admit<'py>(
        &mut self,
        hosts: &Bound<'py, PyAny>,
        classes: &Bound<'py, PyAny>,
        crawls: &Bound<'py, PyAny>,
        now: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (asking, classes) = (rows(hosts, "hosts")?, column::<u8>(classes, "classes")?);
        let (crawls, now) = (rows(crawls, "crawls")?, number::<i64>(now, "i64", "now")?);
        same_length(("hosts", asking.len()), ("classes", classes.len()))?;
        same_length(("hosts", asking.len()), ("crawls", crawls.len()))?;
        at_most(&classes, kernel::CLASS_MAX, "classes")?;
        let mut displaced = Vec::new();
        let mut named = Vec::new();
        let mut first = 0;
        while first < asking.len() {
            let alike = asking[first..].iter().take_while(|&&host| host == asking[first]).count();
            let last = first + alike;
            named.clear();
            for &crawl in &crawls[first..last] {
                if !named.contains(&crawl) {
                    named.push(crawl);
                }
            }
            let class = classes[first..last].iter().copied().max().unwrap_or(0);
            self.kernel.admit(asking[first], class, &named, now, &mut displaced);
            first = last;
        }
        Ok(self.went(hosts.py(), asking, displaced))
    }

    fn claimants<'py>(
        &self,
        py: Python<'py>,
        crawl: &Bound<'py, PyAny>,
        now: &Bound<'py, PyAny>,
        patience: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (crawl, now) =
            (number::<u32>(crawl, "u32", "crawl")?, number::<i64>(now, "i64", "now")?);
        let (patience, most) =
            (number::<i64>(patience, "i64", "patience")?, number::<u64>(most, "u64", "most")?);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let found = self.kernel.claimants(crawl, now, patience, most);
        Ok(bytes_of(py, found.into_iter().map(u32::to_le_bytes)))
    }

    fn claim<'py>(
        &mut self,
        hosts: &Bound<'py, PyAny>,
        now: &Bound<'py, PyAny>,
        patience: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (asking, now) = (rows(hosts, "hosts")?, number::<i64>(now, "i64", "now")?);
        let patience = number::<i64>(patience, "i64", "patience")?;
        let mut displaced = Vec::new();
        for &host in &asking {
            self.kernel.claim(host, now, patience, &mut displaced);
        }
        Ok(self.went(hosts.py(), asking, displaced))
    }

    fn hold(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.hold(host);
        }
        Ok(())
    }

    fn favour(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.favour(host);
        }
        Ok(())
    }

    fn take(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.take(host);
        }
        Ok(())
    }

    fn release(&mut self, hosts: &Bound<'_, PyAny>, until: &Bound<'_, PyAny>) -> PyResult<()> {
        for (host, until) in rows_at((hosts, "hosts"), (until, "until"))? {
            self.kernel.release(host, until);
        }
        Ok(())
    }

    fn wake<'py>(
        &mut self,
        py: Python<'py>,
        now: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (now, most) = now_and_most(now, most)?;
        let woken = self.kernel.wake(now, most);
        Ok(bytes_of(py, woken.into_iter().map(u32::to_le_bytes)))
    }

    fn next(&self) -> i64 {
        self.kernel.next().unwrap_or(-1)
    }

    fn forget(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.forget(host);
        }
        Ok(())
    }

    fn step_aside(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.step_aside(host);
        }
        Ok(())
    }

    fn waits_at<'py>(&self, hosts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = rows(hosts, "hosts")?;
        let groups = rows.into_iter().map(|host| self.kernel.waits_at(host).unwrap_or(NONE));
        Ok(bytes_of(hosts.py(), groups.map(u32::to_le_bytes)))
    }

    fn waiting<'py>(&self, groups: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let counts = self.defined(groups)?.into_iter().map(|group| self.kernel.waiting(group));
        Ok(bytes_of(groups.py(), counts.map(u32::to_le_bytes)))
    }

    fn waiting_for<'py>(
        &self,
        groups: &Bound<'py, PyAny>,
        crawls: &Bound<'py, PyAny>,
        classes: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (numbers, crawls) = (self.defined(groups)?, rows(crawls, "crawls")?);
        let (classes, most) =
            (column::<u8>(classes, "classes")?, number::<u64>(most, "u64", "most")?);
        same_length(("groups", numbers.len()), ("crawls", crawls.len()))?;
        same_length(("groups", numbers.len()), ("classes", classes.len()))?;
        at_most(&classes, kernel::CLASS_MAX, "classes")?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let rows = numbers.into_iter().zip(crawls).zip(classes);
        let counts =
            rows.map(|((group, crawl), class)| self.kernel.waiting_for(group, crawl, class, most));
        Ok(bytes_of(groups.py(), counts.map(u32::to_le_bytes)))
    }

    fn clock<'py>(&self, groups: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let clocks = self.defined(groups)?.into_iter().map(|group| self.kernel.clock(group));
        Ok(bytes_of(groups.py(), clocks.map(i64::to_le_bytes)))
    }

    fn set_clock(&mut self, groups: &Bound<'_, PyAny>, clocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (groups, clocks) = (self.defined(groups)?, instants(clocks, "clocks")?);
        same_length(("groups", groups.len()), ("clocks", clocks.len()))?;
        for (group, clock) in groups.into_iter().zip(clocks) {
            self.kernel.set_clock(group, clock);
        }
        Ok(())
    }

    fn in_flight<'py>(&self, groups: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let turns = self.defined(groups)?.into_iter().map(|group| self.kernel.in_flight(group));
        Ok(bytes_of(groups.py(), turns.map(u32::to_le_bytes)))
    }

    fn __len__(&self) -> usize {
        self.kernel.len()
    }
}
