// Draws what `parts/spans.py` has worked out. Texts are put on a canvas or into text nodes, never into HTML.
import { toRaw } from "vue";
import { echarts } from "nicegui-echart";

// A span is a list; these are the places in it.
const [LANE, PLACED, STARTED, ENDED, ID, NAME, USER, STATE, ATTEMPT] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const [SLIDER, TITLE, CURVE, GAP, AXIS, SIDE] = [48, 24, 44, 6, 42, 44];
const [LANES, LEAST_LANE, MOST_LANE, NAMED_LANE] = [320, 3, 18, 14];
const WAITING = 0.4;

const laneHeight = (band) => Math.max(LEAST_LANE, Math.min(MOST_LANE, LANES / band.lanes));
const style = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

function tick(at) {
  const date = new Date(at);
  const language = document.documentElement.lang;
  if (date.getHours() + date.getMinutes() + date.getSeconds() === 0)
    return date.toLocaleDateString(language, { month: "short", day: "numeric" });
  const seconds = date.getSeconds() ? { second: "2-digit" } : {};
  return date.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", hour12: false, ...seconds });
}

function element(tag, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return made;
}

function facts(title, pairs) {
  const box = element("div");
  box.className = "timeline-facts";
  box.append(element("strong", title));
  const list = element("dl");
  for (const [word, value] of pairs) list.append(element("dt", word), element("dd", value));
  box.append(list);
  return box;
}

export default {
  template: "<div></div>",
  props: { drawing: Object, range: Array, colouring: String, words: Object, states: Object },
  watch: {
    drawing() {
      this.move_to(toRaw(this.range));
    },
    colouring() {
      this.draw();
    },
  },
  mounted() {
    this.chart = echarts.init(this.$el, null, { renderer: "canvas" });
    this.chart.on("click", (event) => this.open(event));
    this.observer = new ResizeObserver(() => this.width !== this.$el.clientWidth && this.draw());
    this.observer.observe(this.$el);
    this.move_to(toRaw(this.range));
  },
  unmounted() {
    this.observer.disconnect();
    this.chart.dispose();
  },
  methods: {
    move_to(range) {
      this.between = range;
      this.draw();
    },
    span(event) {
      return toRaw(this.drawing).bands[event.seriesIndex >> 1].spans[event.dataIndex];
    },
    open(event) {
      if (event.seriesType !== "custom") return;
      const address = "/jobs/" + encodeURIComponent(this.span(event)[ID]);
      const { ctrlKey, metaKey } = event.event.event;
      if (ctrlKey || metaKey) window.open(address, "_blank", "noopener");
      else location.assign(address);
    },
    draw() {
      if (!this.chart || !this.drawing) return;
      const bands = toRaw(this.drawing).bands;
      const parts = { title: [], grid: [], xAxis: [], yAxis: [], series: [] };
      let top = SLIDER;
      bands.forEach((band, index) => (top = this.addBand(parts, band, index, top)));
      this.width = this.$el.clientWidth;
      this.$el.style.height = `${top}px`;
      this.chart.resize();
      const option = { animation: false, tooltip: this.tooltip(), dataZoom: this.zoom(parts.grid.length), ...parts };
      this.chart.setOption(option, { replaceMerge: ["title", "grid", "xAxis", "yAxis", "series"] });
    },
    // What a person has zoomed to stays where it is in time; its right end goes along with now.
    zoom(axes) {
      const all = [...Array(axes).keys()];
      const kept = {};
      const set = this.chart.getOption()?.dataZoom?.[0];
      if (set && (set.start > 0 || set.end < 100)) {
        const [since, until] = this.between;
        kept.endValue = set.end > 99.9 ? until : Math.max(set.endValue, since + 1000);
        kept.startValue = Math.min(Math.max(set.startValue, since), kept.endValue - 1000);
      }
      const common = { xAxisIndex: all, filterMode: "none", ...kept };
      const quiet = style("--quiet");
      return [
        { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, preventDefaultMouseMove: false, ...common },
        {
          type: "slider", top: 4, height: 22, left: SIDE, right: 16, showDataShadow: false, brushSelect: false,
          labelFormatter: (at) => tick(1000 * Math.round(at / 1000)), textStyle: { color: quiet },
          borderColor: style("--line"), fillerColor: style("--mark"), ...common,
        },
      ];
    },
    addBand(parts, band, index, top) {
      const [min, max] = this.between;
      const [quiet, line, text] = [style("--quiet"), style("--line"), style("--text")];
      const [curveAt, lanesAt] = [top + TITLE, top + TITLE + CURVE + GAP];
      const height = band.lanes * laneHeight(band);
      const last = band.curve.length ? band.curve[band.curve.length - 1][1] : null;
      const claimed = last === null ? this.words.no_cpus : this.words.claimed.replace("{percent}", last).replace("{cpus}", band.cpus);
      const wide = { left: SIDE, right: 16 };
      const time = { type: "time", min, max, axisLine: { lineStyle: { color: line } }, axisTick: { show: false } };
      const marks = { splitLine: { show: true, lineStyle: { color: line } }, splitNumber: Math.max(3, this.$el.clientWidth / 130) };
      const label = { color: quiet, hideOverlap: true, formatter: tick };
      const name = { color: text, fontSize: 14, fontWeight: 600, width: this.$el.clientWidth / 2, overflow: "truncate" };
      parts.title.push({ text: band.name, top: top - 4, left: 0, padding: 0, textStyle: name });
      parts.title.push({ text: claimed, top: top - 3, right: 16, padding: 0, textStyle: { color: quiet, fontSize: 12, fontWeight: 400 } });
      parts.grid.push({ ...wide, top: curveAt, height: CURVE }, { ...wide, top: lanesAt, height });
      parts.xAxis.push({ ...time, gridIndex: 2 * index, axisLabel: { show: false }, ...marks });
      parts.xAxis.push({ ...time, gridIndex: 2 * index + 1, axisLabel: label, ...marks });
      const highest = Math.max(100, ...band.curve.map(([, percent]) => percent));
      parts.yAxis.push({
        type: "value", gridIndex: 2 * index, min: 0, max: highest, interval: highest, splitLine: { lineStyle: { color: line } },
        axisLabel: { color: quiet, fontSize: 10, formatter: (value) => `${Math.round(value)} %` },
      });
      parts.yAxis.push({ type: "value", gridIndex: 2 * index + 1, min: 0, max: band.lanes, inverse: true, show: false });
      parts.series.push(this.curve(band, index, last), this.bars(band, index));
      return lanesAt + height + AXIS;
    },
    curve(band, index, last) {
      const data = last === null ? [] : [...band.curve, [this.between[1], last]];
      const colour = style("--used");
      return {
        type: "line", step: "end", xAxisIndex: 2 * index, yAxisIndex: 2 * index, data, symbol: "none", silent: true,
        lineStyle: { color: colour, width: 1.5 }, areaStyle: { color: colour, opacity: 0.18 },
      };
    },
    bars(band, index) {
      const colours = toRaw(this.drawing).colours[this.colouring];
      const key = this.colouring === "user" ? USER : STATE;
      return {
        type: "custom", xAxisIndex: 2 * index + 1, yAxisIndex: 2 * index + 1, encode: { x: [1, 2], y: 0 },
        data: band.spans.map((span) => [span[LANE], span[PLACED], span[ENDED] ?? span[PLACED]]),
        renderItem: (params, api) => this.bar(band.spans[params.dataIndex], colours, key, params.coordSys, api),
      };
    },
    bar(span, colours, key, area, api) {
      const right = area.x + area.width;
      const x = (at) => Math.max(area.x, Math.min(right, api.coord([at, 0])[0]));
      const [from, to] = [x(span[PLACED]), span[ENDED] === null ? right : x(span[ENDED])];
      if (to <= area.x || from >= right) return null;
      const began = span[STARTED] === null ? to : Math.max(from, Math.min(to, x(span[STARTED])));
      const height = api.size([0, 1])[1];
      const y = api.coord([0, span[LANE]])[1] + (height > 5 ? 1 : 0);
      const box = (at, end, opacity) => ({
        type: "rect",
        shape: { x: at, y, width: Math.max(1.5, end - at), height: height - (height > 5 ? 2 : 0.5), r: height > 8 ? 2 : 0 },
        style: { fill: colours[span[key]], opacity },
      });
      const children = [];
      if (began - from > 0.5 || span[STARTED] === null) children.push(box(from, began, WAITING));
      if (span[STARTED] !== null) children.push(box(began, to, 1));
      if (height >= NAMED_LANE && to - began > 36)
        children.push({
          type: "text", silent: true,
          style: { text: span[NAME], x: began + 4, y: y + height / 2 - 1, fill: "#fff", fontSize: 11, verticalAlign: "middle", width: to - began - 8, overflow: "truncate", lineOverflow: "truncate" },
        });
      return { type: "group", children };
    },
    tooltip() {
      return {
        trigger: "item", confine: true, backgroundColor: style("--surface"), borderColor: style("--line"),
        textStyle: { color: style("--text"), fontSize: 13 },
        formatter: (event) => this.describe(this.span(event), toRaw(this.drawing).bands[event.seriesIndex >> 1].name),
      };
    },
    describe(span, cluster) {
      const words = this.words;
      const time = (at) => (at === null ? "–" : moment.format(new Date(at)));
      const begun = span[STARTED] ?? span[PLACED];
      return facts(span[NAME], [
        [words.user, span[USER]],
        [words.cluster, cluster],
        [words.state, this.states[span[STATE]]],
        [words.attempt, span[ATTEMPT]],
        [words.placed, time(span[PLACED])],
        [words.started, time(span[STARTED])],
        [words.ended, time(span[ENDED])],
        [words.duration, lasting(((span[ENDED] ?? Date.now()) - begun) / 1000)],
      ]);
    },
  },
};
