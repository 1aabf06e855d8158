//! Charts: what happened over time, a line for each rule.

use crate::{rules::Rule, sim::Run};
use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::{Shift, types::RangedCoordf64},
    drawing::{DrawingArea, DrawingAreaErrorKind},
    element::{
        Circle, Cross, DynElement, IntoDynElement, PathElement, Rectangle, Text, TriangleMarker,
    },
    prelude::{BLACK, Cartesian2d, DrawingBackend, IntoDrawingArea, RGBColor, SVGBackend, WHITE},
    series::{DashedLineSeries, LineSeries},
    style::{Color, IntoFont, ShapeStyle},
};
use std::{error::Error, ops::Range, path::Path, time::Duration};

const WIDTH: u32 = 960;
const TITLE: u32 = 40;
const LEGEND: u32 = 32;
const PANEL: u32 = 250;
const FONT: &str = "sans-serif";

/// How many points of a line have a marker.
const MARKERS: usize = 14;

type Failed<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;
type Axes<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Panels above each other, over the same time.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The name of the file, without its ending.
    pub(crate) file: &'static str,
    title: &'static str,
    /// When things were bad, in seconds.
    bad: Range<f64>,
    /// What is shown.
    shown: Range<f64>,
    panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
struct Panel {
    label: &'static str,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    rule: Rule,
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// A chart from 5 s before the bad time to `until`.
    pub(crate) fn new(
        file: &'static str,
        title: &'static str,
        bad: Range<f64>,
        until: f64,
    ) -> Self {
        let shown = bad.start - 5.0..until;
        let labels = [
            "successes per second",
            "requests per second",
            "requests in the server",
        ];
        let panel = |label| Panel {
            label,
            lines: Vec::new(),
        };
        Self {
            file,
            title,
            bad,
            shown,
            panels: labels.map(panel).to_vec(),
        }
    }

    /// Adds the line of a rule to each panel, with a point for each `bin`, if there is a style for it:
    /// more lines than five are not read.
    pub(crate) fn add(&mut self, rule: Rule, run: &Run, bin: Duration) {
        if Style::of(rule).is_none() {
            return;
        }
        let all = [
            run.goodput_per_second(bin),
            run.requests_per_second(bin),
            run.longest_queue(bin),
        ];
        let width = bin.as_secs_f64();
        for (panel, values) in self.panels.iter_mut().zip(all) {
            let points = values.into_iter().enumerate();
            let points = points.map(|(place, value)| ((place as f64 + 0.5) * width, value));
            let points = points.filter(|(at, _)| self.shown.contains(at));
            panel.lines.push(Line {
                rule,
                points: points.collect(),
            });
        }
    }

    /// Writes the chart as an SVG into a directory.
    pub(crate) fn write(&self, into: &Path) -> Result<(), Box<dyn Error>> {
        let path = into.join(self.file).with_extension("svg");
        let mut svg = String::new();
        {
            // A server that queues nothing has no panel for it.
            let panels = self.panels.iter().filter(|panel| panel.top() > 1.0);
            let panels: Vec<_> = panels.collect();
            let height = panels
                .iter()
                .fold(TITLE + LEGEND, |height, _| height + PANEL);
            let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            area.fill(&WHITE)?;
            let area = area.titled(self.title, (FONT, 24).into_font())?;
            let (legend, area) = area.split_vertically(LEGEND);
            self.legend(&legend)?;
            let areas = area.split_evenly((panels.len(), 1));
            for (place, (panel, area)) in panels.iter().zip(&areas).enumerate() {
                self.draw(panel, area, place + 1 == panels.len())?;
            }
            area.present()?;
        }
        std::fs::write(path, svg)?;
        Ok(())
    }

    /// The lines and their names, above the panels, where no data is.
    fn legend<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Result<(), Failed<DB>> {
        let lines = self.panels.first().map_or(&[][..], |panel| &panel.lines);
        let mut x = 16;
        for line in lines {
            if let Some(style) = Style::of(line.rule) {
                let name = line.rule.to_string();
                // A font is not at hand to measure the name with.
                let width = i32::try_from(15 * name.len() / 2).unwrap_or(0);
                style.sample(area, name, x)?;
                x += 60 + width;
            }
        }
        Ok(())
    }

    fn draw<DB: DrawingBackend>(
        &self,
        panel: &Panel,
        area: &DrawingArea<DB, Shift>,
        last: bool,
    ) -> Result<(), Failed<DB>> {
        let top = panel.top() * 1.05;
        let mut axes = ChartBuilder::on(area)
            .margin_right(24)
            .margin_left(10)
            .margin_top(8)
            .x_label_area_size(if last { 44 } else { 24 })
            .y_label_area_size(76)
            .build_cartesian_2d(self.shown.clone(), 0.0..top)?;
        let shade = RGBColor(228, 228, 228).filled();
        let bad = [(self.bad.start, 0.0), (self.bad.end, top)];
        axes.draw_series([Rectangle::new(bad, shade)])?;
        let mut mesh = axes.configure_mesh();
        mesh.light_line_style(WHITE.mix(0.0))
            .bold_line_style(BLACK.mix(0.12))
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 16))
            .y_desc(panel.label)
            .y_labels(5)
            .x_labels(12)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .x_label_formatter(&|value| format!("{value:.0}"));
        if last {
            mesh.x_desc("time (s); grey: while things are bad");
        }
        mesh.draw()?;
        for (place, line) in panel.lines.iter().enumerate() {
            line.draw(&mut axes, place)?;
        }
        Ok(())
    }
}

impl Panel {
    fn top(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.fold(1.0, |top, (_, value)| f64::max(top, *value))
    }
}

impl Line {
    fn draw<DB: DrawingBackend>(
        &self,
        axes: &mut Axes<'_, DB>,
        place: usize,
    ) -> Result<(), Failed<DB>> {
        let Some(style) = Style::of(self.rule) else {
            return Ok(());
        };
        let stroke = style.stroke();
        let points = self.points.iter().copied();
        match style.dash {
            None => axes.draw_series(LineSeries::new(points, stroke))?,
            Some((on, off)) => axes.draw_series(DashedLineSeries::new(points, on, off, stroke))?,
        };
        let every = (self.points.len() / MARKERS).max(1);
        // Each line has its markers elsewhere, so that lines on top of each other are told apart.
        let marked = self.points.iter().skip(place * every / 5).step_by(every);
        axes.draw_series(marked.map(|&at| style.mark(at)))?;
        Ok(())
    }
}

/// How the line of a rule looks, in colour and without.
#[derive(Clone, Copy, Debug)]
struct Style {
    colour: RGBColor,
    width: u32,
    /// The lengths of dash and gap in pixels.
    dash: Option<(u32, u32)>,
    marker: Marker,
}

#[derive(Clone, Copy, Debug)]
enum Marker {
    None,
    Cross,
    Triangle,
    Dot,
    Ring,
}

impl Style {
    fn of(rule: Rule) -> Option<Self> {
        let (colour, width, dash, marker) = match rule {
            Rule::NoRetries => (RGBColor(120, 120, 120), 2, Some((2, 4)), Marker::None),
            Rule::Unlimited => (RGBColor(190, 60, 0), 2, Some((10, 5)), Marker::Cross),
            Rule::TowerTps => (RGBColor(200, 130, 0), 2, Some((5, 3)), Marker::Triangle),
            Rule::Default => (RGBColor(0, 70, 150), 3, None, Marker::Dot),
            Rule::Fleet | Rule::HoldOff => (RGBColor(0, 120, 90), 2, None, Marker::Ring),
            Rule::Own { .. } => (RGBColor(0, 0, 0), 3, Some((14, 4)), Marker::Ring),
            _ => return None,
        };
        Some(Self {
            colour,
            width,
            dash,
            marker,
        })
    }

    fn stroke(self) -> ShapeStyle {
        self.colour.stroke_width(self.width)
    }

    fn mark<C: Clone + 'static, DB: DrawingBackend>(self, at: C) -> DynElement<'static, DB, C> {
        match self.marker {
            Marker::None => Circle::new(at, 0, self.colour.filled()).into_dyn(),
            Marker::Cross => Cross::new(at, 5, self.stroke()).into_dyn(),
            Marker::Triangle => TriangleMarker::new(at, 6, self.colour.filled()).into_dyn(),
            Marker::Dot => Circle::new(at, 5, self.colour.filled()).into_dyn(),
            Marker::Ring => Circle::new(at, 5, self.stroke()).into_dyn(),
        }
    }

    /// Draws a piece of the line with its name, for the legend.
    fn sample<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        name: String,
        x: i32,
    ) -> Result<(), Failed<DB>> {
        const LENGTH: i32 = 40;
        const MIDDLE: i32 = 14;

        let (on, off) = match self.dash {
            None => (LENGTH, 1),
            Some((on, off)) => (pixels(on), pixels(off)),
        };
        let mut from = 0;
        while from < LENGTH {
            let to = (from + on).min(LENGTH);
            let piece = vec![(x + from, MIDDLE), (x + to, MIDDLE)];
            area.draw(&PathElement::new(piece, self.stroke()))?;
            from = to + off;
        }
        area.draw(&self.mark((x + LENGTH / 2, MIDDLE)))?;
        let text = Text::new(name, (x + LENGTH + 8, MIDDLE - 8), (FONT, 15).into_font());
        area.draw(&text)
    }
}

fn pixels(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
