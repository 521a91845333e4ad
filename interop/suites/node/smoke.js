'use strict'

// What programs do with kafkajs: one result for each function.

const assert = require('node:assert')
const crypto = require('node:crypto')
const fs = require('node:fs')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const kafka = new Kafka({ clientId: 'smoke', brokers: [process.env.BROKER], logLevel: logLevel.ERROR })
const unique = name => `js-${name}-${crypto.randomBytes(4).toString('hex')}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function eventually(found, ms = 40000) {
  const end = Date.now() + ms
  for (;;) {
    const value = await found()
    if (value) return value
    if (Date.now() > end) throw new Error(`did not come about in ${ms} ms`)
    await sleep(100)
  }
}

async function withAdmin(f) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await f(admin)
  } finally {
    await admin.disconnect()
  }
}

// create does without waitForLeaders, which fails where brokers hear of a topic a
// moment after its creation.
const create = (topic, numPartitions = 1) => withAdmin(async admin => {
  await admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: false })
  await eventually(async () => {
    try {
      const { topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: [topic] })
      return partitions.length === numPartitions && partitions.every(p => p.leader >= 0)
    } catch (e) {
      if (e.type !== 'UNKNOWN_TOPIC_OR_PARTITION') throw e
      return false
    }
  })
})

async function produce(topic, messages, options = {}, producerOptions = {}) {
  const producer = kafka.producer(producerOptions)
  await producer.connect()
  try {
    return await producer.send({ topic, messages, ...options })
  } finally {
    await producer.disconnect()
  }
}

// start runs a consumer that gathers what it gets.
async function start(groupId, topics, options = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200, ...options })
  const state = { consumer, messages: [], assignment: {} }
  consumer.on(consumer.events.GROUP_JOIN, e => { state.assignment = e.payload.memberAssignment })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({ eachMessage: async m => { state.messages.push(m) } })
  return state
}

const shares = (state, topic) => (state.assignment[topic] || []).length

async function codecs() {
  for (const [name, compression] of Object.entries({ none: 0, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy })) {
    const topic = unique(name)
    await create(topic)
    const messages = Array.from({ length: 200 }, (_, i) => ({ key: `k${i}`, value: `value ${i} `.repeat(20), headers: { n: `${i}` } }))
    const [result] = await produce(topic, messages, { compression, acks: -1 })
    assert.equal(result.baseOffset, '0')
    const state = await start(topic, [topic])
    await eventually(() => state.messages.length >= messages.length)
    await state.consumer.disconnect()
    state.messages.forEach(({ message }, i) => {
      assert.equal(message.offset, `${i}`)
      assert.equal(message.key.toString(), messages[i].key)
      assert.equal(message.value.toString(), messages[i].value)
      assert.equal(message.headers.n.toString(), `${i}`)
    })
  }
}

async function idempotent() {
  const topic = unique('idempotent')
  await create(topic)
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let i = 0; i < 20; i++) await producer.send({ topic, messages: [{ value: `${i}` }, { value: null, key: 'deleted' }] })
  await producer.disconnect()
  const [{ high }] = await withAdmin(admin => admin.fetchTopicOffsets(topic))
  assert.equal(high, '40')
}

async function group() {
  const topic = unique('group')
  await create(topic, 4)
  for (let partition = 0; partition < 4; partition++) {
    await produce(topic, Array.from({ length: 10 }, (_, i) => ({ value: `${i}`, partition })))
  }
  const a = await start(topic, [topic])
  await eventually(() => a.messages.length === 40)
  const b = await start(topic, [topic])
  await eventually(() => shares(a, topic) === 2 && shares(b, topic) === 2)
  await b.consumer.disconnect()
  await eventually(() => shares(a, topic) === 4)
  await a.consumer.disconnect()
  const [{ partitions }] = await withAdmin(admin => admin.fetchOffsets({ groupId: topic, topics: [topic] }))
  assert.deepEqual(partitions.map(p => p.offset), ['10', '10', '10', '10'])
  // The next one starts where they were.
  await produce(topic, [{ value: 'more', partition: 2 }])
  const c = await start(topic, [topic])
  await eventually(() => c.messages.length > 0)
  await c.consumer.disconnect()
  assert.deepEqual(c.messages.map(m => [m.partition, m.message.offset]), [[2, '10']])
}

async function seek() {
  const topic = unique('seek')
  await create(topic)
  await produce(topic, Array.from({ length: 10 }, (_, i) => ({ value: `${i}` })))
  const state = await start(topic, [topic])
  await eventually(() => state.messages.length === 10)
  state.consumer.seek({ topic, partition: 0, offset: '7' })
  await eventually(() => state.messages.length === 13)
  await state.consumer.disconnect()
  assert.equal(state.messages[10].message.offset, '7')
}

async function topics() {
  const topic = unique('topics')
  await create(topic, 2)
  await withAdmin(async admin => {
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    assert((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await eventually(async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5)
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
    const value = async () => {
      const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
      return resources[0].configEntries[0].configValue
    }
    await eventually(async () => (await value()) === '3600000')
    const cluster = await admin.describeCluster()
    assert(cluster.clusterId && cluster.brokers.some(b => b.nodeId === cluster.controller))
    await admin.deleteTopics({ topics: [topic] })
    await eventually(async () => !(await admin.listTopics()).includes(topic))
    await assert.rejects(admin.fetchTopicMetadata({ topics: [topic] }), { type: 'UNKNOWN_TOPIC_OR_PARTITION' })
  })
}

async function offsets() {
  const topic = unique('offsets')
  await create(topic)
  await produce(topic, Array.from({ length: 10 }, (_, i) => ({ value: `${i}`, timestamp: `${1000000 + 1000 * i}` })))
  await withAdmin(async admin => {
    assert.deepEqual(await admin.fetchTopicOffsets(topic), [{ partition: 0, offset: '10', low: '0', high: '10' }])
    assert.deepEqual(await admin.fetchTopicOffsetsByTimestamp(topic, 1004500), [{ partition: 0, offset: '5' }])
    await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '4' }] })
    const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
    assert.equal(partitions[0].offset, '4')
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '3' }] })
    const [{ low }] = await admin.fetchTopicOffsets(topic)
    assert.equal(low, '3')
  })
}

async function groups() {
  const topic = unique('groups')
  await create(topic)
  const state = await start(topic, [topic])
  await eventually(() => shares(state, topic) === 1)
  await withAdmin(async admin => {
    assert((await admin.listGroups()).groups.some(g => g.groupId === topic && g.protocolType === 'consumer'))
    const { groups } = await admin.describeGroups([topic])
    assert.equal(groups[0].state, 'Stable')
    assert.equal(groups[0].members.length, 1)
    await assert.rejects(admin.deleteGroups([topic]), e => e.groups[0].error.type === 'NON_EMPTY_GROUP')
    await state.consumer.disconnect()
    await admin.deleteGroups([topic])
    assert.equal((await admin.describeGroups([topic])).groups[0].state, 'Dead')
  })
}

async function main() {
  for (const f of [codecs, idempotent, group, seek, topics, offsets, groups]) {
    const began = Date.now()
    let outcome = 'pass'
    console.log('---', f.name)
    try {
      await f()
    } catch (e) {
      console.log(e)
      outcome = 'fail'
    }
    console.log(`${outcome} in ${(Date.now() - began) / 1000} s`)
    fs.appendFileSync(process.env.RESULTS, `${outcome} ${f.name}\n`)
  }
  // Consumers of tests that failed may still run.
  process.exit(0)
}

main()
