// A span of time: a choice of usual ones, and two moments in the browser's own time zone. Seconds since the
// epoch go out and come in, so an address means the same to a colleague elsewhere.
const MINUTE = 60, HOUR = 3600, DAY = 86400;
const minutes = (seconds) => Math.floor(seconds / MINUTE) * MINUTE;
const at = (daysAgo, hour) => {
  const day = new Date();
  day.setDate(day.getDate() - daysAgo);
  return day.setHours(hour, 0, 0, 0) / 1000;
};
const back = (seconds) => ({ since: minutes(Date.now() / 1000 - seconds), until: null });
const USUAL = {
  any: () => ({ since: null, until: null }),
  hour: () => back(HOUR),
  day: () => back(DAY),
  week: () => back(7 * DAY),
  night: () => ({ since: at(1, 18), until: at(0, 9) }),
};
const local = (seconds) => {
  if (seconds === null || seconds === undefined) return "";
  const date = new Date(seconds * 1000);
  return new Date(date - date.getTimezoneOffset() * MINUTE * 1000).toISOString().slice(0, 16);
};
const seconds = (text) => (text ? new Date(text).getTime() / 1000 : null);

export default {
  template: `
    <div class="time-range" role="group" :aria-label="words.when">
      <q-select dense outlined options-dense emit-value map-options :label="words.when" :options="options"
        :model-value="chosen" @update:model-value="choose" data-test="time-usual" />
      <template v-if="chosen === 'own'">
        <q-input dense outlined stack-label type="datetime-local" :label="words.since" :model-value="local(since)"
          debounce="600" @update:model-value="(text) => tell({ since: seconds(text), until })" data-test="time-since" />
        <q-input dense outlined stack-label type="datetime-local" :label="words.until" :model-value="local(until)"
          debounce="600" @update:model-value="(text) => tell({ since, until: seconds(text) })" data-test="time-until" />
      </template>
    </div>
  `,
  props: { since: Number, until: Number, words: Object, inAddress: Boolean },
  emits: ["range"],
  data: () => ({ opened: false }),
  computed: {
    options() { return [...Object.keys(USUAL), "own"].map((value) => ({ value, label: this.words[value] })); },
    given() { return [this.since, this.until].some((each) => each !== null && each !== undefined); },
    chosen() { return this.given || this.opened ? "own" : "any"; },
  },
  methods: {
    local,
    seconds,
    choose(name) {
      this.opened = name !== "any";
      if (name !== "own") this.tell(USUAL[name]());
    },
    tell({ since, until }) {
      const range = { since: since ?? null, until: until ?? null };
      if (this.inAddress) {
        const address = new URL(location);
        for (const [name, value] of Object.entries(range)) {
          if (value === null) address.searchParams.delete(name);
          else address.searchParams.set(name, value);
        }
        history.replaceState(history.state, "", address);
      }
      this.$emit("range", range);
    },
  },
};
