//! What a scenario says: tables, published figures beside ours, claims, and charts.

use crate::plot::Chart;
use std::fmt::{self, Write};

/// What came of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) parts: Vec<Part>,
    pub(crate) charts: Vec<Chart>,
}

#[derive(Debug)]
pub(crate) enum Part {
    Table(Table),
    Figures(Vec<Figure>),
    Claims(Vec<Claim>),
    Note(&'static str),
}

impl Report {
    pub(crate) fn note(&mut self, note: &'static str) {
        self.parts.push(Part::Note(note));
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }

    /// Puts a table before what was said while it was made.
    pub(crate) fn table_first(&mut self, table: Table) {
        self.parts.insert(0, Part::Table(table));
    }

    pub(crate) fn figures_last(&mut self, figures: Vec<Figure>) {
        self.parts.push(Part::Figures(figures));
    }

    pub(crate) fn claim(&mut self, claim: Claim) {
        match self.parts.last_mut() {
            Some(Part::Claims(claims)) => claims.push(claim),
            _ => self.parts.push(Part::Claims(vec![claim])),
        }
    }

    pub(crate) fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().flat_map(|part| match part {
            Part::Figures(figures) => &figures[..],
            _ => &[],
        })
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.parts.iter().flat_map(|part| match part {
            Part::Claims(claims) => &claims[..],
            _ => &[],
        })
    }
}

/// A figure that others published, and ours: one for each seed.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) published: f64,
    pub(crate) tolerance: f64,
    pub(crate) ours: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(
        what: impl Into<String>,
        published: f64,
        tolerance: f64,
        ours: impl Into<Vec<f64>>,
    ) -> Self {
        Self {
            what: what.into(),
            published,
            tolerance,
            ours: ours.into(),
        }
    }

    /// Success in percent: within 1 point.
    pub(crate) fn success(what: impl Into<String>, published: f64, ours: Vec<f64>) -> Self {
        Self::new(what, published, 1.0, ours)
    }

    /// Attempts per call: within 0.03.
    pub(crate) fn load(what: impl Into<String>, published: f64, ours: Vec<f64>) -> Self {
        Self::new(what, published, 0.03, ours)
    }

    /// Shown beside ours, and no test: what was published does not say enough to repeat it.
    pub(crate) fn beside(what: impl Into<String>, published: f64, ours: Vec<f64>) -> Self {
        Self::new(what, published, f64::INFINITY, ours)
    }

    /// A number that has to be just that.
    pub(crate) fn exact(what: impl Into<String>, published: u32, ours: u32) -> Self {
        Self::new(what, f64::from(published), 0.0, [f64::from(ours)])
    }

    pub(crate) fn is_tested(&self) -> bool {
        self.tolerance.is_finite()
    }

    /// Whether the mean of all seeds is within the tolerance.
    pub(crate) fn holds(&self) -> bool {
        /// What is left of adding fractions.
        const DUST: f64 = 1e-9;

        (mean(&self.ours) - self.published).abs() <= self.tolerance + DUST
    }
}

/// Something that this crate says of its defaults.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) what: String,
    pub(crate) holds: bool,
    pub(crate) measured: String,
}

impl Claim {
    pub(crate) fn new(what: impl Into<String>, holds: bool, measured: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            holds,
            measured: measured.into(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            head: head.map(String::from).to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// The first column is text, the others are numbers.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<_> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let mut line = String::from("  ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(line, "{cell:<width$}")?,
                    _ => write!(line, "  {cell:>width$}")?,
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            writeln!(f)?;
            match part {
                Part::Table(table) => table.fmt(f)?,
                Part::Figures(figures) => figure_table(figures).fmt(f)?,
                Part::Claims(claims) => claim_lines(claims, f)?,
                Part::Note(note) => {
                    for line in note.lines() {
                        writeln!(f, "  {line}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn figure_table(figures: &[Figure]) -> Table {
    let head = [
        "published figure",
        "published",
        "ours",
        "seeds",
        "within",
        "",
    ];
    let mut table = Table::new(head);
    for figure in figures {
        let lowest = figure.ours.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = figure
            .ours
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        table.row([
            figure.what.clone(),
            short(figure.published),
            short(mean(&figure.ours)),
            match lowest == highest {
                true => String::new(),
                false => format!("{} to {}", short(lowest), short(highest)),
            },
            match figure.tolerance {
                0.0 => "exact".into(),
                f64::INFINITY => "-".into(),
                tolerance => short(tolerance),
            },
            match figure.holds() {
                true if !figure.is_tested() => "not tested".into(),
                true => "ok".into(),
                false => "MISSED".into(),
            },
        ]);
    }
    table
}

fn claim_lines(claims: &[Claim], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for claim in claims {
        let verdict = match claim.holds {
            true => "holds",
            false => "DOES NOT HOLD",
        };
        writeln!(f, "  {verdict}: {} ({})", claim.what, claim.measured)?;
    }
    Ok(())
}

/// As many digits as are worth reading.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        large if large >= 1000.0 => format!("{number:.0}"),
        percent if percent >= 20.0 => format!("{number:.1}"),
        _ => format!("{number:.3}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .into(),
    }
}

pub(crate) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
