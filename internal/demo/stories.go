package demo

import "strings"

// A Person is somebody of a story.
type Person struct{ Name, He, Him, His string }

func she(names ...string) []Person { return people("she", "her", "her", names) }
func he(names ...string) []Person  { return people("he", "him", "his", names) }

func people(he, him, his string, names []string) []Person {
	out := make([]Person, len(names))
	for i, n := range names {
		out[i] = Person{n, he, him, his}
	}
	return out
}

// Persons are those of the texts.
var Persons = append(
	she("Mia", "Lily", "Anna", "Nora", "Ella", "Ruby", "Zoe", "Clara", "Maya", "Ivy", "Hana", "Rosa", "Emma", "Tess"),
	he("Ben", "Tom", "Max", "Leo", "Sam", "Jack", "Owen", "Finn", "Hugo", "Ravi", "Omar", "Theo", "Luca", "Nico")...)

// Words of the texts.
var (
	Animals = []string{"fox", "rabbit", "bear", "duck", "owl", "mouse", "dog", "cat", "frog", "goat", "squirrel", "turtle"}
	Places  = []string{"forest", "village", "garden", "valley", "meadow", "town", "farm", "harbor"}
	Spots   = []string{"under the old bridge", "behind the big barn", "beside the pond", "near the tall tree", "at the end of the lane", "on top of the hill", "inside a hollow log", "by the stone wall"}
	Things  = []string{"kite", "lantern", "drum", "boat", "basket", "whistle", "ball", "blanket", "key", "bell", "hat", "scarf"}
	Colors  = []string{"red", "blue", "green", "yellow", "silver", "brown", "white", "purple"}
	Foods   = []string{"bread", "soup", "apple pie", "berry cake", "corn muffins", "pancakes", "honey cookies", "plum jam"}
	plants  = []string{"beans", "carrots", "pumpkins", "roses", "tulips", "tomatoes", "sunflowers", "onions"}
	sounds  = []string{"tap, tap, tap", "creak, creak", "hoot, hoot", "drip, drop", "scratch, scratch", "bump, bump"}
	grown   = []string{"grandmother", "grandfather", "mother", "father", "aunt", "uncle", "teacher"}
)

// asides may stand between any two beats of a plot.
var asides = []string{
	"The [sun|moon|wind|air] was [warm|soft|cool|gentle|pale], and the [grass|path|ground|water] was [wet|bright|still|golden|dry].",
	"{h} took a deep breath and [smiled|waited|nodded|counted to ten|looked around].",
	"\"I [like|love|know|remember] this [place|song|smell|time of day],\" [thought|said|whispered] {h}.",
	"A [bird|cricket|bee|dog|bell] could be heard [far away|close by|over the roofs|in the trees].",
	"It smelled of [rain|hay|smoke|flowers|fresh bread|wet leaves] and [honey|mud|pine|apples|salt].",
	"{His} [hands|feet|ears|cheeks|knees] were [cold|warm|muddy|red|tired] by now.",
	"{h} [sang|hummed|whistled] a [short|silly|slow|merry|new] song about a [{animal}|cloud|king|star|shoe].",
	"Somewhere a [door|window|gate|clock|wagon] made a [loud|soft|funny|strange] noise.",
	"It was [not easy|harder than it looked|almost too good to be true|a little bit funny|very quiet now].",
	"{He} had [two|three|four|five|six|seven] [nuts|stones|buttons|leaves|cherries] in {his} pocket and [counted them|gave one away|held them tight|threw one in the air].",
	"\"[Hurry|Wait|Look|Listen|Careful]!\" said {h}. \"[It is getting late|I have an idea|We must be brave|Something is moving|I can see the {place} from here].\"",
	"The [clouds|leaves|shadows|birds] looked like [little ships|old men|sheep|dragons|letters].",
	"{h} thought of {his} {elder}, who [always|often|sometimes] said, \"[Look twice|Be kind|Take your time|Try again|Trust your friends].\"",
	"For a [moment|minute|while], [nobody spoke|everything was still|{he} forgot the time|{he} wanted to go home|it seemed like a dream].",
	"There were [red|blue|yellow|tiny|round|shiny] [berries|beetles|pebbles|mushrooms|feathers] [all along the path|on the ground|everywhere|in the grass].",
	"{h} [jumped over|walked around|stepped on|slipped on] a [puddle|root|log|pile of leaves|flat stone] and [laughed|went on|almost fell|stopped].",
	"[Slowly|Suddenly|At last|Little by little], the [light|wind|sky|fog] [changed|grew stronger|turned pink|went away].",
	"\"What is [that|this|it]?\" {he} [asked|wondered]. It was only a [leaf|snail|feather|piece of string|shadow].",
}

// inventions are asides made of words from the lists: they keep the text from being easy to
// predict.
var inventions = []string{
	"\"I spy a {adj} {noun},\" said {h}. \"And I spy a {noun},\" came the answer.",
	"In the [basket|box|bag|cupboard|shed] there was a {noun}, a {noun} and a {adj} {noun}.",
	"{h} [dreamed of|thought of|drew|remembered] a {adj} {noun} with a {adj} {noun}.",
	"They played a game of words: {noun}, {noun}, {noun}, {noun}.",
	"The {noun} was {adj}, the {noun} was {adj}, and so was the day.",
	"\"I would give a {noun} for a {adj} {noun},\" said {h} {adv}.",
	"A {adj} {noun} passed by {adv} and carried a {noun}.",
	"{h} {adv} put a {noun} on the {noun}, and a {adj} {noun} next to it.",
	"{His} [favorite|first|next] [word|toy|wish|riddle] was a {noun}, then a {adj} {noun}, then a {adj} {noun}.",
	"[Three|Four|Five|Six] {adj} [birds|men|horses|ladies] {adv} sold a {noun}, a {adj} {noun} and a {noun}.",
}

// lists are words drawn anew each time a template names their list. All start
// with a consonant: they may follow "a".
var lists = map[string][]string{
	"adj": strings.Fields("big little red blue green yellow brown white black round tall short long soft hard warm cold new dry wet " +
		"loud quiet fast slow happy sad sleepy hungry funny strange shiny dusty broken pretty brave gentle golden silver secret tiny"),
	"noun": strings.Fields("table chair house tree river stone cloud star moon boat ship wagon wheel rope ladder lamp candle mirror " +
		"window door roof wall bridge road field hill mountain lake fish bird bear fox mouse rabbit duck goose horse cow pig sheep goat " +
		"cake pie cookie nut pear plum cherry potato carrot bean leaf flower rose hat coat shoe sock button ring key bell drum flute " +
		"ball kite doll book letter picture map coin box bag basket bottle cup plate spoon knife pot pan bed pillow blanket"),
	"adv": strings.Fields("slowly quickly quietly loudly happily sadly gently bravely carefully softly suddenly kindly proudly lazily"),
}

// A plot is a list of beats; a beat a list of ways to write it.
type plot [][]string

var openings = []string{
	"[Once upon a time|Long ago|One day], there was a [little|young|kind|quiet] [girl|child] named {h} who lived [in|near] a [small|sunny|quiet|green|faraway] {place}.",
	"{h} lived in a [small|cozy|bright] house near the {place}.",
	"One [sunny|cold|windy|rainy|quiet] [morning|afternoon], {h} went for a walk in the {place}.",
	"There was once a {place} where a [clever|kind|brave] child named {h} lived with {his} {elder}.",
}

var endings = []string{
	"From that day on, {h} and {f} were the best of friends.",
	"{h} went home with a big smile and told {his} {elder} all about it.",
	"That night, {h} fell asleep feeling [happy|proud|warm and safe].",
	"And {h} never forgot that [kind words cost nothing|it is good to ask for help|small things can be important|sharing makes everyone happy].",
	"\"What a [wonderful|lucky|busy] day,\" said {h}, and they all laughed.",
}

var plots = []plot{
	{ // a thing is lost and found
		{"{He} loved {his} {color} {thing} more than anything.", "{His} {elder} had given {him} a {color} {thing}, and {he} took it everywhere."},
		{"But one day the {thing} was gone. {h} felt very [sad|worried].", "Then, one morning, {h} could not find the {thing} anywhere."},
		{"{He} looked under the bed, but it was not there. {He} looked [behind the door|in the kitchen|in the box], but it was not there.", "{He} searched the house from top to bottom, but found [nothing|only dust|only an old sock]."},
		{"\"Have you seen my {thing}?\" {he} asked {f} the {animal}.", "On the path {he} met {f}, a [small|friendly|sleepy] {animal}. \"Can you help me find my {thing}?\" asked {h}."},
		{"\"I saw something {color} {spot},\" said {f}. \"Come with me!\"", "{f} thought for a moment. \"Let us look {spot},\" said the {animal}."},
		{"They ran as fast as they could, and there it was: the {color} {thing}!", "Together they looked {spot}, and there was the {thing}, [wet|dusty] but not broken."},
		{"\"Thank you, {f}!\" said {h}.", "{h} hugged the {animal}. \"You are a true friend,\" {he} said."},
	},
	{ // a hungry animal and a shared meal
		{"{His} {elder} had baked {food}, and the whole house smelled [sweet|good].", "{h} carried a basket with {food} for {his} {elder}."},
		{"On the way {he} saw a {animal} sitting {spot}.", "Suddenly {he} heard a small voice. A {animal} was sitting {spot}."},
		{"\"Why are you so sad?\" asked {h}. \"I am {f}, and I am very hungry,\" said the {animal}.", "\"My name is {f},\" said the {animal}, \"and I have not eaten [all day|since yesterday].\""},
		{"{h} looked at the {food}. There was not much, but {he} gave half of it to {f}.", "{h} did not think long. \"We can share,\" {he} said, and gave {f} a big piece."},
		{"The {animal} ate [slowly|quickly] and smiled. \"I never had better {food},\" said {f}.", "\"Thank you,\" said {f}. \"Now I feel strong again.\""},
		{"Then {f} showed {h} a secret path {spot}, full of [berries|flowers|butterflies].", "To say thank you, {f} gave {him} a {color} {thing}."},
	},
	{ // a garden grows
		{"{h} wanted to grow {plant}, so {he} dug a [small|long] bed {spot}.", "In spring, {his} {elder} gave {him} a bag of seeds. \"These will be {plant},\" {he} was told."},
		{"{He} put the seeds in the ground and watered them every day.", "Every morning {he} watered the seeds, and every evening {he} looked for green leaves."},
		{"But after [one week|two weeks|ten days], nothing had grown. \"Maybe the seeds are asleep,\" said {h}.", "Days went by, and nothing happened. {h} began to worry."},
		{"{f} the {animal} came by. \"You must wait,\" said {f}. \"Good things need time.\"", "\"They need more [sun|water|time],\" said {f}, a wise old {animal}."},
		{"So {h} waited. It rained, and then the sun came out.", "{h} pulled the weeds and waited a little longer."},
		{"At last the first {plant} came up, [bright|fresh|small] and beautiful.", "One morning the whole bed was full of {plant}!"},
		{"{h} gave the first ones to {f}.", "There were enough {plant} for the whole {place}."},
	},
	{ // a strange noise
		{"One night {h} woke up. {Sound}, went something outside the window.", "It was dark, and {h} could not sleep. {Sound}! What was that?"},
		{"\"Is it a [ghost|monster|giant]?\" {he} whispered.", "{He} pulled the blanket over {his} head. \"Who is there?\" {he} asked."},
		{"There was no answer, only the noise: {sound}.", "{Sound}, it went again."},
		{"{h} took a [lamp|candle|light] and opened the door [slowly|carefully].", "{h} was afraid, but {he} was also [curious|brave]. {He} opened the door."},
		{"There stood {f}, a little {animal}, holding a {color} {thing}.", "It was only a {animal} with a {color} {thing}! \"I am {f},\" it said."},
		{"\"I am sorry,\" said {f}. \"I lost my way in the [rain|dark|wind].\"", "\"Please let me in,\" said {f}. \"It is so cold outside.\""},
		{"{h} laughed. \"Come in! I will make you some {food}.\"", "So {h} gave {f} a warm place by the fire."},
	},
	{ // building something together
		{"{h} wanted to build a [tree house|raft|bridge|tiny house] for the summer.", "\"I will build the best [sled|cart|swing] in the {place},\" said {h}."},
		{"{He} found some wood {spot} and started to work.", "{He} asked {his} {elder} for a hammer and some nails."},
		{"But the wood was too heavy, and {he} could not lift it alone.", "But it fell down again and again."},
		{"{f} the {animal} watched for a while. \"Do you need help?\" asked {f}.", "\"May I help?\" asked {f}, a strong {animal}."},
		{"{h} wanted to say no, but then {he} nodded. \"Yes, please.\"", "\"Oh yes,\" said {h}. \"Two are better than one.\""},
		{"{f} held the wood while {h} used the hammer. They worked until the sun went down.", "They worked all [day|afternoon], and they sang a song about a {color} {thing}."},
		{"When it was done, they painted it {color}.", "At last it was finished, and it was [strong|beautiful|perfect]."},
	},
	{ // a storm
		{"The sky turned dark, and the wind began to blow.", "Big clouds came over the {place}, and it started to rain."},
		{"{h} ran to the door. \"{f} the {animal} is still outside!\" {he} cried.", "\"Where is {f}?\" asked {h}. {f} was a small {animal} who lived {spot}."},
		{"{He} put on {his} {color} coat and went out into the storm.", "{His} {elder} said, \"Take the {thing}, and be careful.\""},
		{"{spotUp}, {he} found {f}, cold and [wet|afraid].", "{He} called, \"{f}! {f}!\" Then {he} heard a small voice {spot}."},
		{"\"Hold on to me,\" said {h}, and carried the {animal} home.", "{h} wrapped {f} in a {color} blanket and ran back."},
		{"Inside, they ate {food} and listened to the rain.", "Soon they were dry, and there was hot {food} for everyone."},
	},
	{ // a race
		{"Every year {h} and {f} the {animal} ran a race from the {place} to the river.", "\"I am the fastest {animal} in the {place}!\" said {f} to {h}."},
		{"{h} wanted to win the {color} {thing}, so {he} ran every morning before breakfast.", "\"Shall we race?\" asked {h}. \"The winner gets my {color} {thing}.\""},
		{"On the big day, {h} and {f} stood side by side. \"One, two, three, go!\"", "They ran past the barn, past the pond, and up the hill."},
		{"{f} was fast, but then {f} fell {spot}.", "Halfway, {h} saw that {f} had hurt a foot."},
		{"{h} could have won. But {he} stopped and helped {f} up.", "\"Are you all right?\" asked {h}. \"We can walk together.\""},
		{"They crossed the line at the same time, and everybody cheered.", "They came in last, hand in hand, but nobody clapped as loudly as {his} {elder}."},
		{"\"Winning is nice,\" said {h}, \"but a friend is better.\"", "They cut the prize in two, and each took half."},
	},
	{ // the market
		{"{His} {elder} sent {him} to the market to buy {food}.", "On market day {h} had [three|four|five|six] coins in {his} pocket."},
		{"At the first table there were {plant}. At the second table there was a {color} {thing}.", "There were so many things to see: {plant}, {food}, and a {color} {thing}."},
		{"\"How much is the {thing}?\" asked {h}. \"[Two|Three|Four] coins,\" said {f}, the {animal} behind the table.", "An old {animal} named {f} was selling the {thing}."},
		{"{h} counted {his} coins. There was not enough for both.", "{h} thought about it for a long time."},
		{"\"I will help you carry your boxes,\" {he} said, \"if I may have the {thing}.\"", "\"If you sing a song for me,\" said the {animal}, \"you can have it.\""},
		{"So they [worked|laughed] together until noon, and {h} got the {thing}.", "That is how {h} came home with {food} and a {thing} too."},
	},
	{ // a new friend
		{"{h} was new in the {place}, and {he} did not know anyone.", "It was the first day of school, and {h} felt shy."},
		{"At noon {he} sat alone {spot} and ate {his} {food}.", "{He} held {his} {color} {thing} and looked at the ground."},
		{"Then {g} came over. \"I like your {color} {thing},\" said {g}.", "\"Hello, I am {g},\" said a voice. \"May I sit with you?\""},
		{"\"Do you want to play?\" asked {h}. \"Yes!\" said {g}.", "{h} smiled and moved over. \"Would you like some {food}?\""},
		{"They played {spot} until the bell rang.", "They talked about {plant} and {food}, and about the {place}."},
		{"\"See you tomorrow, {h}!\" said {g}. \"See you tomorrow, {g}!\" said {h}.", "After school {g} walked home with {h}, and they counted [birds|clouds|steps] on the way."},
	},
	{ // a promise kept
		{"\"Please bring the {thing} to {g} before dark,\" said {his} {elder}. \"I promise,\" said {h}.", "{h} had promised {g} to bring back the {color} {thing}."},
		{"On the way {he} saw {f} the {animal} {spot}. \"Come and play!\" said {f}.", "But the sun was warm, and {f} the {animal} wanted to play {spot}."},
		{"\"Not now,\" said {h}. \"First I must keep my promise.\"", "{h} played for a while. Then {he} remembered. \"Oh no, the {thing}!\""},
		{"{He} ran past the [mill|church|well] and over the bridge.", "{h} ran and ran, and {f} ran with {him}."},
		{"{g} was waiting at the gate. \"You came just in time!\"", "When they reached the house of {g}, the first star was in the sky."},
		{"\"Thank you,\" said {g}, and gave them both some {food}.", "{g} was so glad that {h} got {food} to take home."},
	},
}

// schoolPlot is the plot in which the new friend is a person, not an animal.
const schoolPlot = 8

// story writes one story; the prompt is its opening and first beat.
func (w *Writer) Story() Document {
	h, g := Two(w, Persons)
	f, _ := Two(w, animalNames)
	w.Bind = map[string]string{
		"h": h.Name, "he": h.He, "him": h.Him, "his": h.His, "He": Title(h.He), "His": Title(h.His),
		"g": g.Name, "f": f,
		"place": Pick(w, Places), "spot": Pick(w, Spots), "thing": Pick(w, Things), "color": Pick(w, Colors),
		"food": Pick(w, Foods), "plant": Pick(w, plants), "animal": Pick(w, Animals), "elder": Pick(w, grown),
		"sound": Pick(w, sounds),
	}
	w.Bind["Sound"] = Title(w.Bind["sound"])
	w.Bind["spotUp"] = Title(w.Bind["spot"])
	n := w.Intn(len(plots))
	p := plots[n]
	if n == schoolPlot {
		w.Bind["f"] = g.Name
	}
	opening := Pick(w, openings)
	if h.He == "he" {
		opening = strings.ReplaceAll(opening, "[girl|child]", "[boy|child]")
	}
	parts := []string{w.Expand(opening), w.Expand(Pick(w, p[0]))}
	prompt := strings.Join(parts, " ")
	parts = parts[:0]
	for i, beat := range p[1:] {
		switch {
		case i == 0:
		case w.Intn(2) == 0:
			parts = append(parts, w.sentence(Pick(w, inventions)))
		default:
			parts = append(parts, w.sentence(Pick(w, asides)))
		}
		parts = append(parts, w.sentence(Pick(w, beat)))
	}
	parts = append(parts, w.sentence(Pick(w, endings)))
	return Document{Prompt: prompt, Answer: " " + strings.Join(parts, " ")}
}

// sentence expands a template with other words for common ones, and sometimes a word about the
// time in front.
func (w *Writer) sentence(t string) string {
	t = synonyms.Replace(t)
	for _, start := range [][2]string{{"{He} ", "{he} "}, {"{His} ", "{his} "}, {"The ", "the "}, {"They ", "they "}, {"{h} ", "{h} "}, {"It ", "it "}} {
		if rest, ok := strings.CutPrefix(t, start[0]); ok && w.Intn(2) == 0 {
			t = times + ", " + start[1] + rest
			break
		}
	}
	return w.Expand(t)
}

const times = "[After a while|A little later|Before long|All at once|To be sure|Of course|As always|In the end|Now|Just then|For once|Without a word|With a sigh|Once again|Still]"

// synonyms puts a choice in place of these words wherever a template has them outside its own
// choices.
var synonyms = strings.NewReplacer(
	" said {", " [said|answered|replied|called|whispered|laughed] {",
	"?\" asked {", "?\" [asked|wondered|cried|whispered] {",
	"An old ", "An old ",
	" found ", " [found|saw|spotted|noticed|discovered] ",
	" looked ", " [looked|searched|peeked] ",
	" ran ", " [ran|hurried|rushed|walked] ",
	" very ", " [very|so|really|quite|rather|terribly] ",
	" big ", " [big|huge|large|great|fine] ",
	" small ", " [small|little|tiny|young|shy] ",
	" old ", " [old|grey|wise|gentle|grumpy] ",
	" the {animal}", " the [|little |good |funny |brave |old ]{animal}",
	" a {color} ", " [a|a lovely|a strange|a shiny|a little|a heavy] {color} ",
	" the {color} ", " the [|pretty |dear |poor |famous |good ]{color} ",
	" wanted to ", " [wanted to|hoped to|liked to|had to] ",
	" good ", " [good|lovely|fine|pleasant|nice] ",
	" for a long time", " for [a long time|a whole minute|an hour|quite a while]",
	" together ", " [together|side by side|happily|quietly|cheerfully] ",
)

var animalNames = []string{"Pip", "Bramble", "Coco", "Dusty", "Fern", "Hazel", "Moss", "Nibbles", "Pepper", "Tumble", "Willow", "Biscuit"}

// Title begins a text with a capital.
func Title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
