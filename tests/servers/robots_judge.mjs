// Writes a robots.txt from the settings in a JSON file, as a site of Nuxt does.
import { readFileSync } from 'node:fs'
import { generateRobotsTxt, normalizeGroup } from '@nuxtjs/robots/util'

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'))
process.stdout.write(generateRobotsTxt({ groups: settings.groups.map(normalizeGroup), sitemaps: settings.sitemaps }))
