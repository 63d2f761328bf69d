// A table of jobs. What comes from jobs is text: it is only ever put in with {{ }} and bound attributes.
// A row with `members` stands for several jobs; it opens to show them. `place` is the list that is shown.
const fill = (text, n) => text.replace("{n}", n);

export default {
  template: `
    <div class="jobs">
      <div v-if="mayPick && count" class="jobs-picked" role="region" :aria-label="say('picked', count)" data-test="picked">
        <span role="status">{{ say("picked", count) }}</span>
        <q-btn v-if="stoppable" dense no-caps unelevated color="negative" icon="stop" :label="say('stop', stoppable)"
          data-test="stop" @click="bulk('stop')" />
        <q-btn v-if="retriable" dense no-caps unelevated color="primary" icon="replay" :label="say('retry', retriable)"
          data-test="retry" @click="bulk('retry')" />
        <q-btn dense no-caps flat :label="words.unpick" @click="unpick" />
      </div>
      <table v-if="rows.length" class="jobs-table" role="table" data-test="jobs">
        <thead role="rowgroup"><tr role="row">
          <th v-if="mayPick" role="columnheader" scope="col" class="jobs-pick" :data-label="words.pick_all">
            <input type="checkbox" :checked="allPicked" :aria-label="words.pick_all" :title="words.pick_all"
              data-test="pick-all" @change="pickAll($event.target.checked)">
          </th>
          <th v-for="each in columns" :key="each" role="columnheader" scope="col" :class="'jobs-' + each">{{ words[each] }}</th>
        </tr></thead>
        <tbody role="rowgroup">
          <template v-for="line in lines" :key="line.key">
            <tr v-if="line.row" role="row" :class="{ 'jobs-inner': line.head, 'jobs-group': line.row.members }"
                data-test="job" :data-job="line.row.id">
              <td v-if="mayPick" role="cell" class="jobs-pick">
                <input v-if="pickable(line.row)" type="checkbox" :checked="isPicked(line)" :disabled="inPicked(line)"
                  :aria-label="words.pick + ' ' + line.row.name" @change="pick(line, $event.target.checked)">
              </td>
              <td role="cell" class="jobs-name"><div :class="{ 'jobs-title': line.row.members }">
                <q-btn v-if="line.row.members" flat dense round size="sm" :icon="opened[line.row.id] ? 'expand_more' : 'chevron_right'"
                  :aria-expanded="opened[line.row.id] ? 'true' : 'false'" data-test="open"
                  :aria-label="(opened[line.row.id] ? words.close : words.open) + ' ' + line.row.name" @click="toggle(line.row.id)" />
                <a :href="target(line.row)" :title="line.row.id">{{ line.row.name }}</a>
              </div></td>
              <td role="cell" class="jobs-state">
                <template v-if="line.row.members">
                  <span class="jobs-count">{{ say("jobs", total(line.row)) }}</span>
                  <span class="jobs-bar" aria-hidden="true">
                    <span v-for="(n, state) in line.row.members" :key="state" :class="'state-' + state" :style="{ flexGrow: n }"></span>
                  </span>
                </template>
                <template v-else>
                  <span :class="'state state-' + line.row.state">{{ states[line.row.state] }}</span>
                  <span v-if="line.row.stopping" class="quiet">{{ words.stopping }}</span>
                  <span v-if="line.row.attempt > 1" class="quiet">{{ say("attempt", line.row.attempt) }}</span>
                </template>
              </td>
              <td role="cell" class="jobs-cluster" :data-label="words.cluster">{{ line.row.members ? "" : line.row.cluster }}</td>
              <td v-if="withUser" role="cell" class="jobs-user" :data-label="words.user">{{ line.row.user }}</td>
              <td role="cell" class="jobs-submitted" :data-label="words.submitted"><time :data-at="line.row.accepted"></time></td>
              <td role="cell" class="jobs-waited" :data-label="words.waited">
                <time v-if="!line.row.members" :data-from="line.row.accepted" :data-to="line.row.waited"></time>
              </td>
              <td role="cell" class="jobs-ran" :data-label="words.ran">
                <time v-if="!line.row.members && line.row.started" :data-from="line.row.started" :data-to="line.row.ended"></time>
              </td>
              <td role="cell" class="jobs-message">
                <span v-if="line.row.members" class="jobs-chips">
                  <span v-for="(n, state) in line.row.members" :key="state" :class="'state state-' + state">{{ n }} {{ states[state] }}</span>
                </span>
                <span v-else class="two-lines" :title="line.row.about">{{ why(line.row) }}</span>
              </td>
            </tr>
            <tr v-else role="row" class="jobs-inner">
              <td role="cell" class="jobs-more" :colspan="columns.length + (mayPick ? 1 : 0)">
                <a v-if="line.more" :href="target(line.more)">{{ say("all_of", total(line.more)) }}</a>
                <span v-else class="quiet" role="status">{{ words.loading }}</span>
              </td>
            </tr>
          </template>
        </tbody>
      </table>
      <nav v-if="newer || older" class="jobs-pages" :aria-label="words.pages">
        <q-btn flat no-caps icon="first_page" :label="words.newest" :disable="!newer" data-test="newest" @click="$emit('turn', 'newest')" />
        <q-btn flat no-caps icon="chevron_left" :label="words.newer" :disable="!newer" data-test="newer" @click="$emit('turn', 'newer')" />
        <q-btn flat no-caps icon-right="chevron_right" :label="words.older" :disable="!older" data-test="older" @click="$emit('turn', 'older')" />
      </nav>
    </div>
  `,
  props: {
    rows: Array, members: Object, place: String, newer: Boolean, older: Boolean,
    words: Object, states: Object, reasons: Object, mayPick: Boolean, withUser: Boolean,
  },
  emits: ["open", "close", "bulk", "turn", "address"],
  data() {
    // What is selected, by key: the last known row, which may have left the page since.
    return { picked: {}, opened: {} };
  },
  computed: {
    columns() {
      const all = ["name", "state", "cluster", "user", "submitted", "waited", "ran", "message"];
      return all.filter((each) => each !== "user" || this.withUser);
    },
    lines() {
      return this.rows.flatMap((row) => {
        const line = { key: (row.members ? "group " : "job ") + row.id, row };
        if (!row.members || !this.opened[row.id]) return [line];
        const inner = this.members[row.id];
        if (!inner) return [line, { key: "loading " + row.id }];
        const jobs = inner.rows.map((job) => ({ key: "job " + job.id, row: job, head: row.id }));
        return [line, ...jobs, ...(inner.more ? [{ key: "more " + row.id, more: row }] : [])];
      });
    },
    count() { return this.sum((row) => (row.members ? row.stop + row.retry : 1)); },
    stoppable() { return this.sum((row) => row.stop); },
    retriable() { return this.sum((row) => row.retry); },
    offered() { return this.lines.filter((line) => line.row && !line.head && this.pickable(line.row)); },
    allPicked() { return this.offered.length > 0 && this.offered.every(this.isPicked); },
  },
  watch: {
    place() {
      this.picked = {};
      this.opened = {};
    },
    lines() {
      for (const line of this.lines) {
        if (!(line.key in this.picked)) continue;
        if (this.pickable(line.row)) this.picked[line.key] = line.row;
        else delete this.picked[line.key];
      }
    },
  },
  mounted() {
    window.addEventListener("popstate", this.moved);
    this.keep();
  },
  beforeUnmount() { window.removeEventListener("popstate", this.moved); },
  methods: {
    say(word, n) { return fill(this.words[word], n); },
    sum(number) { return Object.values(this.picked).reduce((sum, row) => sum + number(row), 0); },
    total(row) { return Object.values(row.members).reduce((sum, n) => sum + n, 0); },
    target(row) {
      const id = encodeURIComponent(row.id);
      return row.members ? "/jobs?head=" + id : "/jobs/" + id;
    },
    why(row) {
      if (row.exit !== null) return this.say("exit_code", row.exit);
      const reason = this.reasons[row.reason];
      return reason && row.message ? reason + ": " + row.message : reason || row.message;
    },
    pickable(row) { return row.stop + row.retry > 0; },
    inPicked(line) { return Boolean(line.head) && "group " + line.head in this.picked; },
    isPicked(line) { return line.key in this.picked || this.inPicked(line); },
    pick(line, on) {
      if (!on) return void delete this.picked[line.key];
      this.picked[line.key] = line.row;
      if (!line.row.members) return;
      for (const each of this.lines) if (each.head === line.row.id) delete this.picked[each.key];
    },
    pickAll(on) {
      if (!on) return this.unpick();
      for (const line of this.offered) this.pick(line, true);
    },
    unpick() { this.picked = {}; },
    toggle(id) {
      if (this.opened[id]) delete this.opened[id];
      else this.opened[id] = true;
      this.$emit(this.opened[id] ? "open" : "close", id);
    },
    bulk(action) {
      const rows = Object.values(this.picked).filter((row) => row[action]);
      const ids = (some) => some.map((row) => row.id);
      this.$emit("bulk", { action, jobs: ids(rows.filter((row) => !row.members)), heads: ids(rows.filter((row) => row.members)) });
    },
    go(address, replace) {
      if (replace) history.replaceState(history.state, "", address);
      else history.pushState({}, "", address);
      this.keep();
    },
    moved() {
      this.keep();
      this.$emit("address", location.search);
    },
    keep() { sessionStorage.setItem("raymc-list", location.search); },
  },
};
