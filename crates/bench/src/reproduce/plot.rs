//! Plots as SVG. A legend stands beside its plot, what is modelled looks otherwise than what is measured, and
//! what the paper's text says is marked by diamonds.

use super::figure::{Axis, Mark, Panel, Point, Scale, Series, Source, shown};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;

/// Width and height.
const SIZE: (u32, u32) = (960, 420);
/// The legend's part of the width.
const LEGEND: u32 = 230;
/// From one line of the legend to the next.
const LINE: i32 = 20;
/// Where the largest value is more than so many times the smallest one, the axis is logarithmic.
const FACTOR_LINEAR_MAX: f64 = 10.0;
/// A bar's share of its place.
const BAR: f64 = 0.9;
/// Told apart by most people, also in print.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x99, 0x33, 0x99),
    RGBColor(0xb3, 0x1b, 0x1b),
    RGBColor(0x66, 0x66, 0x66),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0x20, 0xa0, 0xa0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn failed(error: impl Display) -> anyhow::Error {
    anyhow!("a plot could not be drawn: {error}")
}

/// The plot of a panel.
pub fn svg(panel: &Panel) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (plot, legend) = area.split_horizontally(SIZE.0 - LEGEND);
        let (least, most) = panel.extent().unwrap_or((1.0, 1.0));
        if panel.scale == Scale::Fitting && most / least > FACTOR_LINEAR_MAX {
            draw(panel, &plot, (least / 1.6..most * 1.6).log_scale())?;
        } else {
            draw(panel, &plot, 0.0..most * 1.08)?;
        }
        explain(panel, &legend)?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// Contenders have one color each, wherever their points come from.
fn color(panel: &Panel, name: &str) -> RGBColor {
    let mut names: Vec<&str> = Vec::new();
    for series in &panel.series {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let place = names.iter().position(|other| *other == name).unwrap_or(names.len());
    COLORS[place % COLORS.len()]
}

/// The points and marks of a panel, and where they are from left to right.
struct Places<'a> {
    panel: &'a Panel,
    names: Vec<(f64, &'a str)>,
}

impl Places<'_> {
    /// How wide a bar is.
    fn bar(&self) -> f64 {
        0.8 / self.panel.series.len().max(1) as f64
    }
    /// Where the points of a series are that stand at `x`.
    fn at(&self, series: Option<usize>, x: f64) -> f64 {
        match self.panel.axis {
            Axis::Numbers => x,
            Axis::Names => {
                let place = self.names.iter().position(|(at, _)| *at == x).unwrap_or(0) as f64;
                let offset = series.map(|number| (number as f64 + 0.5) * self.bar() - 0.4);
                place + offset.unwrap_or(0.0)
            }
        }
    }
    fn range(&self) -> std::ops::Range<f64> {
        match self.panel.axis {
            Axis::Numbers => 0.0..self.names.last().map_or(1.0, |place| place.0) * 1.03,
            Axis::Names => -0.5..self.names.len() as f64 - 0.5,
        }
    }
    /// What stands under a place.
    fn label(&self, x: f64) -> String {
        if self.panel.axis == Axis::Numbers {
            return format!("{x:.0}");
        }
        let is_whole = (x - x.round()).abs() < 0.01 && x > -0.01;
        let name = self.names.get(x.round() as usize).filter(|_| is_whole);
        name.map_or(String::new(), |(_, name)| (*name).to_owned())
    }
}

fn draw<Y>(panel: &Panel, area: &Area<'_>, y: Y) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let places = Places { panel, names: panel.places() };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(84)
        .caption(&panel.title, ("sans-serif", 15))
        .build_cartesian_2d(places.range(), y)
        .map_err(failed)?;
    let label = |x: &f64| places.label(*x);
    let y_label = |y: &f64| shown(*y);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE)
        .x_desc(panel.x_label)
        .y_desc(panel.y_label)
        .x_label_formatter(&label)
        .y_label_formatter(&y_label);
    if panel.axis == Axis::Names {
        mesh.disable_x_mesh().x_labels(2 * places.names.len() + 1);
    }
    mesh.draw().map_err(failed)?;
    let bottom = chart.y_range().start;
    for (number, series) in panel.series.iter().enumerate() {
        let color = color(panel, &series.name);
        match panel.axis {
            Axis::Numbers => line(&mut chart, series, color)?,
            Axis::Names => bars(&mut chart, &places, number, bottom)?,
        }
        for point in series.points.iter().filter(|point| point.y.max > point.y.min && point.y.min > 0.0) {
            whisker(&mut chart, places.at(Some(number), point.x), point)?;
        }
    }
    for marked in &panel.marks {
        let number = panel.series.iter().position(|series| series.name == marked.of);
        mark(&mut chart, places.at(number, marked.x), marked, color(panel, &marked.of))?;
    }
    Ok(())
}

type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

fn line<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, Y>,
    series: &Series,
    color: RGBColor,
) -> Result<()> {
    let points = series.points.iter().map(|point| (point.x, point.y.median)).filter(|point| point.1 > 0.0);
    let points: Vec<(f64, f64)> = points.collect();
    match series.source {
        Source::Modelled => {
            chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2))).map_err(failed)?;
            let open = points.iter().map(|&point| Circle::new(point, 3, WHITE.filled()));
            chart.draw_series(open).map_err(failed)?;
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, color))).map_err(failed)?;
        }
        Source::Measured => {
            let dashes = DashedLineSeries::new(points.clone(), 5, 4, color.stroke_width(1));
            chart.draw_series(dashes).map_err(failed)?;
            let squares = points
                .iter()
                .map(|&point| EmptyElement::at(point) + Rectangle::new([(-5, -5), (5, 5)], color.filled()));
            chart.draw_series(squares).map_err(failed)?;
        }
    }
    Ok(())
}

fn bars<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, Y>,
    places: &Places<'_>,
    number: usize,
    bottom: f64,
) -> Result<()> {
    let series = &places.panel.series[number];
    let color = color(places.panel, &series.name);
    let half = places.bar() * BAR / 2.0;
    let corners = series.points.iter().filter(|point| point.y.median > bottom).map(|point| {
        let x = places.at(Some(number), point.x);
        [(x - half, bottom), (x + half, point.y.median)]
    });
    let corners: Vec<_> = corners.collect();
    let filling = match series.source {
        Source::Modelled => color.mix(0.45).filled(),
        Source::Measured => color.filled(),
    };
    chart.draw_series(corners.iter().map(|&corners| Rectangle::new(corners, filling))).map_err(failed)?;
    chart.draw_series(corners.iter().map(|&corners| Rectangle::new(corners, color))).map_err(failed)?;
    Ok(())
}

/// The least and the largest sample.
fn whisker<Y: Ranged<ValueType = f64>>(chart: &mut Chart<'_, '_, Y>, x: f64, point: &Point) -> Result<()> {
    let (low, high) = ((x, point.y.min), (x, point.y.max));
    chart.draw_series([PathElement::new(vec![low, high], BLACK)]).map_err(failed)?;
    let ends = [low, high].map(|end| EmptyElement::at(end) + PathElement::new(vec![(-3, 0), (3, 0)], BLACK));
    chart.draw_series(ends).map_err(failed)?;
    Ok(())
}

/// Where the paper puts a contender.
fn mark<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, Y>,
    x: f64,
    mark: &Mark,
    color: RGBColor,
) -> Result<()> {
    let Mark { low, high, .. } = *mark;
    chart
        .draw_series([PathElement::new(vec![(x, low), (x, high)], BLACK.stroke_width(2))])
        .map_err(failed)?;
    let ends = if low == high { vec![low] } else { vec![low, high] };
    let diamonds = ends.into_iter().map(|y| {
        EmptyElement::at((x, y)) + Polygon::new(diamond(6), BLACK) + Polygon::new(diamond(4), color.mix(1.0))
    });
    chart.draw_series(diamonds).map_err(failed)?;
    Ok(())
}

fn diamond(size: i32) -> Vec<(i32, i32)> {
    vec![(0, -size), (size, 0), (0, size), (-size, 0)]
}

/// The legend.
fn explain(panel: &Panel, area: &Area<'_>) -> Result<()> {
    let style = TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Left, VPos::Center));
    let mut y = 50;
    let mut say = |text: String, draw: &dyn Fn(i32) -> Result<()>| {
        draw(y)?;
        area.draw(&Text::new(text, (34, y), style.clone())).map_err(failed)?;
        y += LINE;
        Ok::<(), anyhow::Error>(())
    };
    for series in &panel.series {
        let color = color(panel, &series.name);
        say(format!("{}, {}", series.name, series.source.name()), &|y| {
            swatch(panel, series.source, color, area, y)
        })?;
    }
    if panel.series.iter().flat_map(|series| &series.points).any(|point| point.samples.len() > 1) {
        say("least and largest sample".to_owned(), &|y| {
            let path =
                |points: &[(i32, i32)]| area.draw(&PathElement::new(points.to_vec(), BLACK)).map_err(failed);
            path(&[(17, y - 7), (17, y + 7)])?;
            path(&[(13, y - 7), (21, y - 7)])?;
            path(&[(13, y + 7), (21, y + 7)])
        })?;
    }
    if !panel.marks.is_empty() {
        say("what the paper says".to_owned(), &|y| {
            let at = |size| diamond(size).into_iter().map(|(dx, dy)| (17 + dx, y + dy)).collect::<Vec<_>>();
            area.draw(&Polygon::new(at(6), BLACK)).map_err(failed)?;
            area.draw(&Polygon::new(at(4), WHITE)).map_err(failed)
        })?;
    }
    Ok(())
}

/// What a series looks like.
fn swatch(panel: &Panel, source: Source, color: RGBColor, area: &Area<'_>, y: i32) -> Result<()> {
    let rectangle = |style: ShapeStyle, half: (i32, i32)| {
        let corners = [(17 - half.0, y - half.1), (17 + half.0, y + half.1)];
        area.draw(&Rectangle::new(corners, style)).map_err(failed)
    };
    match (panel.axis, source) {
        (Axis::Names, Source::Modelled) => {
            rectangle(color.mix(0.45).filled(), (9, 6))?;
            rectangle(color.into(), (9, 6))
        }
        (Axis::Names, Source::Measured) => rectangle(color.filled(), (9, 6)),
        (Axis::Numbers, Source::Modelled) => {
            let path = PathElement::new(vec![(6, y), (28, y)], color.stroke_width(2));
            area.draw(&path).map_err(failed)?;
            area.draw(&Circle::new((17, y), 3, WHITE.filled())).map_err(failed)?;
            area.draw(&Circle::new((17, y), 3, color)).map_err(failed)
        }
        (Axis::Numbers, Source::Measured) => {
            for x in [6, 14, 22] {
                let path = PathElement::new(vec![(x, y), (x + 5, y)], color);
                area.draw(&path).map_err(failed)?;
            }
            rectangle(color.filled(), (5, 5))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::Sample;

    fn panel(axis: Axis, largest: f64) -> Panel {
        let point = |x: f64, values: &[f64]| {
            let sample = |&y: &f64| Sample { seed: 1, y, run: serde_json::Value::Null };
            Point::of(x, format!("{x} %"), values.iter().map(sample).collect())
        };
        let series = |source, values: &[f64]| Series {
            name: "calvin".to_owned(),
            source,
            points: vec![point(0.0, values), point(1.0, &[0.0])],
        };
        let all = vec![series(Source::Modelled, &[2.0, largest]), series(Source::Measured, &[1.0])];
        let mut panel = Panel::new("A title", ("workers", "transactions/s"), axis, all);
        panel.mark("calvin", 0.0, ("calvin", 0.0), 0.5..=0.8, "less");
        panel
    }

    /// What is absent, empty or 0 is no reason to fail, or to write what no viewer understands.
    #[test]
    fn plots_name_sources_samples_and_marks() {
        for axis in [Axis::Names, Axis::Numbers] {
            for largest in [2.5, 2_500.0] {
                let text = svg(&panel(axis, largest)).unwrap();
                for wanted in [
                    "calvin, modelled",
                    "calvin, measured",
                    "least and largest sample",
                    "what the paper says",
                ] {
                    assert!(text.contains(wanted), "{wanted}: {text}");
                }
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
            let empty = Panel::new("Empty", ("x", "y"), axis, Vec::new());
            assert!(svg(&empty).unwrap().contains("Empty"));
        }
    }
}
