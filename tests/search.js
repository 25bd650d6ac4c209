// Runs the site's own search worker: node search.js WORKER INDEX QUERY... prints a JSON list of the places found, one list a query.
const fs = require("fs")
const vm = require("vm")
const [worker, index, ...queries] = process.argv.slice(2)
const answers = []
const place = { console: { ...console, warn() {} }, location: { href: "file:///worker.js" }, setTimeout, URL }
let receive
place.self = place
place.addEventListener = (_type, handler) => (receive = handler)
place.postMessage = (message) => answers.push(message)
vm.createContext(place)
vm.runInContext(fs.readFileSync(worker, "utf8"), place)
const ask = async (type, data) => {
  answers.length = 0
  await receive({ data: { type, data } })
  for (let turn = 0; answers.length === 0 && turn < 1000; turn++) await new Promise(setImmediate)
  return answers[0]
}
const main = async () => {
  const { config, docs } = JSON.parse(fs.readFileSync(index, "utf8"))
  await ask(0, { config, docs, options: { suggest: false } })
  const found = []
  for (const query of queries) {
    const { data } = await ask(2, query)
    found.push(data.items.map((group) => group[0].location))
  }
  console.log(JSON.stringify(found))
}
main()
