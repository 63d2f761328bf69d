// The log of a job in the browser: it follows all attempts, or shows one. It reads from the REST interface of
// the same server with the visitor's cookie, so that logs do not pass through the server's pages.
import { LogBuffer, MOST_HITS, count, events, finder, lineElement, refusal } from "raymc-log-text";

const RETRY_MS = 3000;
// The server says every 15 seconds that it is there.
const SILENCE_MS = 45000;
// A tab in the background is paused after this time.
const HIDDEN_MS = 30000;
const NEAR_END = 40;

export default {
  template: `
    <div class="log-view">
      <div class="log-bar">
        <label v-if="attempts.length > 1">{{ texts.attempt }}
          <select v-model="chosen" @change="load" data-test="log-attempt">
            <option value="">{{ texts.all }}</option>
            <option v-for="each in attempts" :key="each.number" :value="String(each.number)">{{ each.number }} · {{ each.cluster }}</option>
          </select>
        </label>
        <span class="log-search">
          <input type="search" v-model="wanted" @input="searchSoon" @keydown.enter.prevent="step($event.shiftKey ? -1 : 1)"
            :aria-label="texts.search" :placeholder="texts.search" data-test="log-search">
          <button type="button" @click="step(-1)" :disabled="!hits.length" :aria-label="texts.previous" :title="texts.previous">↑</button>
          <button type="button" @click="step(1)" :disabled="!hits.length" :aria-label="texts.next" :title="texts.next">↓</button>
          <span role="status" class="quiet" data-test="log-hits">{{ found }}</span>
        </span>
        <span class="log-choices">
          <label><input type="checkbox" v-model="follow" @change="toEnd" data-test="log-follow"> {{ texts.follow }}</label>
          <label><input type="checkbox" v-model="wrap" data-test="log-wrap"> {{ texts.wrap }}</label>
          <button type="button" @click="download" :disabled="empty" data-test="log-download">{{ texts.download }}</button>
        </span>
      </div>
      <div v-if="dropped" class="log-note">{{ texts.dropped.replace("{lines}", dropped) }}
        <button type="button" @click="downloadWhole" :disabled="fetching" data-test="log-whole">{{ texts.whole }}</button></div>
      <div v-if="note" class="log-note" role="status">{{ note }}</div>
      <div ref="box" class="log-box mono" :class="{ 'log-wrap': wrap }" tabindex="0" role="region" :aria-label="texts.log"
        @scroll.passive="scrolled" data-test="log-lines"><div ref="blocks"></div><div ref="open"></div></div>
      <div class="log-status quiet" role="status" data-test="log-status" :data-state="state">{{ status }}</div>
    </div>`,
  props: { submissionId: String, attempts: Array, ended: Boolean, note: String, blank: String, texts: Object },
  data() {
    return {
      chosen: "", wanted: "", follow: true, wrap: true, state: "reading", problem: "", empty: true, dropped: 0,
      fetching: false, hits: [], hit: -1,
    };
  },
  computed: {
    address() {
      return `${window.path_prefix || ""}/api/v1/jobs/${encodeURIComponent(this.submissionId)}/logs`;
    },
    found() {
      if (!this.wanted) return "";
      const all = this.hits.length >= MOST_HITS ? `${MOST_HITS}+` : this.hits.length;
      return this.hits.length ? `${this.hit + 1} / ${all}` : this.texts.nothing_found;
    },
    status() {
      if (this.state === "problem") return this.problem;
      if (this.empty && this.state === "following") return this.blank;
      if (this.empty && this.state === "ended") return this.texts.ended_empty;
      return this.texts[this.state];
    },
  },
  watch: {
    // An attempt that was chosen while it ran has more to show when it is over.
    ended() {
      if (this.chosen) this.load();
    },
  },
  created() {
    this.buffer = new LogBuffer();
    this.find = null;
    this.turn = 0;
    this.elements = new Map();
  },
  mounted() {
    const options = { root: this.$refs.box, rootMargin: "1200px 0px" };
    this.observer = new IntersectionObserver((entries) => entries.forEach(this.seen), options);
    document.addEventListener("visibilitychange", this.visibility);
    this.load();
  },
  beforeUnmount() {
    this.turn += 1;
    this.abort?.abort();
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.visibility);
    [this.silence, this.hiding, this.searching].forEach(clearTimeout);
  },
  methods: {
    // ---- reading
    load() {
      this.turn += 1;
      this.abort?.abort();
      this.reset();
      this.state = "reading";
      return this.chosen ? this.readOne(this.turn, this.chosen) : this.readOn(this.turn);
    },
    reset() {
      this.buffer.clear();
      this.hits = [];
      this.hit = -1;
      this.flushSoon();
    },
    async readOne(turn, attempt) {
      try {
        const logs = await this.logOf(attempt);
        if (turn !== this.turn) return;
        this.buffer.feed(logs || "");
        this.buffer.finish();
        this.state = logs === null ? "none" : "one";
        this.flushSoon();
      } catch (problem) {
        if (turn === this.turn) this.fail(problem);
      }
    },
    async logOf(attempt) {
      const response = await fetch(`${this.address}?attempt=${encodeURIComponent(attempt)}`);
      if (!response.ok) throw await refusal(response);
      return (await response.json()).logs;
    },
    // Follow all attempts to the end of the job, over lost connections.
    async readOn(turn) {
      this.last = null;
      while (turn === this.turn) {
        await this.visible();
        try {
          if (turn === this.turn && (await this.readEvents(turn))) return;
        } catch (problem) {
          if (turn === this.turn && problem.final) return this.fail(problem);
        }
        clearTimeout(this.silence);
        if (turn !== this.turn || this.paused) continue;
        this.state = "lost";
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    },
    // Returns whether the log has come to its end.
    async readEvents(turn) {
      this.abort = new AbortController();
      const headers = { Accept: "text/event-stream" };
      if (this.last !== null) headers["Last-Event-ID"] = this.last;
      this.listen();
      const response = await fetch(`${this.address}/tail`, { headers, signal: this.abort.signal, cache: "no-store" });
      if (!response.ok) throw await refusal(response);
      this.state = "following";
      for await (const event of events(response.body)) {
        if (turn !== this.turn) return true;
        this.listen();
        if (event.name === "error") throw Object.assign(new Error(event.data.error.message), { final: true });
        if (event.id !== null) this.last = event.id;
        if (event.name === "end") {
          this.buffer.finish();
          this.state = "ended";
          this.flushSoon();
          clearTimeout(this.silence);
          return true;
        }
        if (event.data) this.buffer.feed(event.data.text);
        this.flushSoon();
      }
      return false;
    },
    listen() {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
    },
    fail(problem) {
      this.problem = problem.message;
      this.state = "problem";
    },
    visibility() {
      clearTimeout(this.hiding);
      if (document.hidden) {
        this.hiding = setTimeout(() => {
          this.paused = true;
          this.abort?.abort();
        }, HIDDEN_MS);
      } else {
        this.paused = false;
        this.resume?.();
        this.flushSoon();
      }
    },
    visible() {
      return this.paused ? new Promise((resolve) => (this.resume = resolve)) : Promise.resolve();
    },
    // ---- showing
    flushSoon() {
      if (this.flushing) return;
      this.flushing = true;
      requestAnimationFrame(() => {
        this.flushing = false;
        if (this.$refs.box) this.flush();
      });
    },
    flush() {
      const { blocks, open } = this.buffer;
      const kept = new Set(blocks);
      for (const [block, element] of this.elements) if (!kept.has(block)) this.forget(block, element);
      for (const block of blocks) {
        if (!this.elements.has(block)) this.addBlock(block);
        else if (block.shown < block.lines.length) this.grow(block, this.elements.get(block));
      }
      this.$refs.open.replaceChildren(...(open ? [lineElement({ raw: open.split("\r").filter(Boolean).pop() || "", style: this.buffer.style }, null)] : []));
      this.empty = this.buffer.empty;
      this.dropped = this.buffer.dropped;
      if (this.find) this.searchOn();
      if (this.follow) this.toEnd();
    },
    addBlock(block) {
      const element = document.createElement("div");
      element.className = "log-block";
      element.block = block;
      this.elements.set(block, element);
      this.$refs.blocks.append(element);
      block.filled = true;
      this.fill(block, element);
      this.observer.observe(element);
    },
    forget(block, element) {
      this.observer.unobserve(element);
      element.remove();
      this.elements.delete(block);
    },
    fill(block, element) {
      element.style.height = "";
      element.replaceChildren(...block.lines.map((line) => lineElement(line, this.find)));
      block.shown = block.lines.length;
    },
    grow(block, element) {
      if (block.filled) element.append(...block.lines.slice(block.shown).map((line) => lineElement(line, this.find)));
      block.shown = block.lines.length;
    },
    // Only what is near the visible part has elements; the rest keeps its height.
    seen({ target, isIntersecting }) {
      const { block } = target;
      if (isIntersecting && !block.filled) {
        block.filled = true;
        this.fill(block, target);
        this.markHit();
      } else if (!isIntersecting && block.filled && target.isConnected) {
        target.style.height = `${target.offsetHeight}px`;
        target.replaceChildren();
        block.filled = false;
      }
    },
    scrolled() {
      const box = this.$refs.box;
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
      if (atEnd) this.follow = true;
      else if (box.scrollTop < this.place - 2) this.follow = false;
      this.place = box.scrollTop;
    },
    toEnd() {
      const box = this.$refs.box;
      if (this.follow) this.place = box.scrollTop = box.scrollHeight;
    },
    // ---- searching
    searchSoon() {
      clearTimeout(this.searching);
      this.searching = setTimeout(() => this.search(), 200);
    },
    search() {
      this.find = finder(this.wanted);
      this.hits = [];
      this.hit = -1;
      this.buffer.blocks.forEach((block) => (block.searched = 0));
      for (const [block, element] of this.elements) if (block.filled) this.fill(block, element);
      if (!this.find) return;
      this.searchOn();
      if (this.hits.length) this.step(1);
    },
    // Search in what has come since, and forget hits in what was dropped.
    searchOn() {
      const gone = this.hits.findIndex((hit) => this.elements.has(hit.block));
      const lost = gone < 0 ? this.hits.length : gone;
      const fresh = [];
      for (const block of this.buffer.blocks) {
        for (let index = block.searched || 0; index < block.lines.length; index += 1) {
          if (this.hits.length - lost + fresh.length >= MOST_HITS) break;
          const times = count(this.find, block.lines[index].raw);
          for (let nth = 0; nth < times; nth += 1) fresh.push({ block, index, nth });
        }
        block.searched = block.lines.length;
      }
      if (!lost && !fresh.length) return;
      this.hits = Object.freeze([...this.hits.slice(lost), ...fresh]);
      this.hit = Math.max(-1, this.hit - lost);
    },
    step(by) {
      if (!this.hits.length) return;
      this.follow = false;
      this.hit = (this.hit + by + this.hits.length) % this.hits.length;
      const { block } = this.hits[this.hit];
      const element = this.elements.get(block);
      if (!block.filled) {
        block.filled = true;
        this.fill(block, element);
      }
      const mark = this.markHit();
      const box = this.$refs.box;
      if (mark) box.scrollTop += mark.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
      this.place = box.scrollTop;
    },
    markHit() {
      this.$refs.box.querySelector("mark.log-hit")?.classList.remove("log-hit");
      const hit = this.hits[this.hit];
      const line = hit && this.elements.get(hit.block)?.children[hit.index];
      const mark = line?.querySelector(`mark[data-hit="${hit.nth}"]`);
      mark?.classList.add("log-hit");
      return mark;
    },
    // ---- taking away
    download() {
      this.save(this.buffer.text());
    },
    async downloadWhole() {
      if (this.ended && !this.chosen) return this.saveFrom(`${this.address}/tail`);
      this.fetching = true;
      try {
        const numbers = this.chosen ? [this.chosen] : this.attempts.map((each) => each.number);
        const logs = [];
        for (const number of numbers) logs.push((await this.logOf(number)) || "");
        this.save(logs.join("\n"));
      } catch (problem) {
        this.fail(problem);
      } finally {
        this.fetching = false;
      }
    },
    save(text) {
      const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
      this.saveFrom(address);
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    },
    saveFrom(address) {
      const link = document.createElement("a");
      link.href = address;
      link.download = `${this.submissionId}.log`;
      link.click();
    },
  },
};
